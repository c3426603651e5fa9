"""A command whose extra is not installed names the extra, in one sentence."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from vecmill.errors import MissingExtra
from vecmill_ray.command import ray, require_extra


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed here")
@pytest.mark.parametrize("command", ["serve", "embed"])
def test_a_missing_extra_is_named(command: str, tmp_path: Path) -> None:
    arguments = {"serve": ["--config", str(tmp_path)], "embed": [str(tmp_path), "-o", str(tmp_path / "out")]}
    extra = {"serve": "serve", "embed": "bulk"}[command]
    result = CliRunner().invoke(ray, [command, *arguments[command]])
    assert isinstance(result.exception, MissingExtra)
    assert f"vecmill-ray[{extra}]" in result.exception.message


@pytest.mark.parametrize(
    ("module", "error"),
    [("ray", MissingExtra), ("ray.serve", MissingExtra), ("vecmillion", MissingExtra)]
    + [(f"{ours}.gone", ModuleNotFoundError) for ours in ("vecmill", "vecmill_ray", "vecmill_server")],
)
def test_only_a_module_of_another_package_is_a_missing_extra(module: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=module), require_extra("serve"):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
