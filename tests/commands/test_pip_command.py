"""Commands in error messages install into the interpreter that runs, wherever they are typed."""

import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest

from vecmill.values import messages
from vecmill.values.messages import pip_command


def test_the_command_names_the_interpreter() -> None:
    assert shlex.split(pip_command("install", "vecmill[openvino]")) == [
        *(sys.executable, "-m", "pip", "install", "vecmill[openvino]")
    ]


def test_a_shell_leaves_the_brackets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/a folder/python")
    assert pip_command("install", "vecmill[gpu]") == "'/a folder/python' -m pip install 'vecmill[gpu]'"


def test_an_environment_without_pip_is_one_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PathFinder", SimpleNamespace(find_spec=lambda name: None))
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    assert pip_command("uninstall", "onnxruntime") == "uv pip uninstall --python /venv/bin/python onnxruntime"


@pytest.mark.parametrize("folder", ["archive-v0", "environments-v2"])
def test_an_environment_of_uvx_is_not_changed(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PathFinder", SimpleNamespace(find_spec=lambda name: None))
    monkeypatch.setattr(sys, "prefix", f"/home/me/.cache/uv/{folder}/6Lh2")
    assert pip_command("install", "vecmill[corpus]") == "uvx --with 'vecmill[corpus]' vecmill-server"


def test_setuptools_can_be_imported_afterwards() -> None:
    code = "from vecmill.values.messages import pip_command; pip_command('install', 'a'); import setuptools"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
