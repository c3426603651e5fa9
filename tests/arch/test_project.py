"""What holds for the project as a whole: its folders, versions, locks and map."""

import json
import re
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from pages.module_map import CHANGES, LIST, MAP, written_list, wrong_paths
from support.git_files import kept_files
from support.source_tree import ROOT

TOP_LEVEL = {
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "docker",
    "docs",
    "libs",
    "pyproject.toml",
    "services",
    "tests",
}
LIBRARY = ROOT / "libs/vecmill/pyproject.toml"
SERVICE = ROOT / "services/vecmill_server/pyproject.toml"
RAY = ROOT / "services/vecmill_ray/pyproject.toml"
SERVE_LOCK = ROOT / "services/vecmill_server/requirements.lock"
MODEL_LOCK = ROOT / "libs/vecmill_minilm/model.lock"
TEST_LOCK = ROOT / "tests/requirements.lock"
CLIENT_LOCKS = sorted((ROOT / "tests/clients/environments").glob("*.txt"))
TOOL_LOCKS = [
    ROOT / f"tests/{tools}/requirements.txt"
    for tools in ("audit", "chart", "chart/checkov", "fuzz", "images", "on_ray")
]
PEER_LOCKS = sorted((ROOT / "tests/bench/peers/environments").glob("*.txt"))
IMAGE_LOCKS = sorted((ROOT / "docker/packages").glob("*.txt"))
NPM_LOCKS = sorted((ROOT / "tests").glob("c*/npm*/package-lock.json"))
NOT_SERVED = {"ray", "torch", "transformers", "sentence-transformers"}


def project(path: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))["project"]
    return table


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    return canonical(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def pinned(lock: Path) -> dict[str, str]:
    """Each requirement of a lock: its name, and all that is said of it."""
    text = re.sub(r"^#.*\n", "", lock.read_text("utf-8"), flags=re.MULTILINE)
    entries = re.findall(r"^\S.*(?:\n[ ].*)*", text, flags=re.MULTILINE)
    return {requirement_name(entry): entry for entry in entries}


def test_the_top_level_holds_only_what_belongs_there() -> None:
    tops = {name.partition("/")[0] for name in kept_files()}
    assert {name for name in tops if not name.startswith(".")} - TOP_LEVEL == set()


def test_no_file_of_a_clone_is_a_link() -> None:
    """A link leads to a folder of the machine on which it was made."""
    listing = ["git", "ls-files", "--stage"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    assert [line for line in done.stdout.splitlines() if line.startswith("120000")] == []


def test_one_version_everywhere() -> None:
    version = project(LIBRARY)["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    assert newest is not None
    assert newest[1] == version
    assert project(SERVICE)["version"] == version
    assert project(RAY)["version"] == version
    assert f"vecmill-server =={version}" in project(RAY)["dependencies"]
    assert f"vecmill[cpu] =={version}" in project(SERVICE)["dependencies"]


def test_the_list_of_modules_has_them_as_they_are() -> None:
    assert LIST.read_text("utf-8") == written_list(), "run `make map`"


@pytest.mark.parametrize("page", [MAP, CHANGES], ids=lambda page: page.name)
def test_every_path_of_the_map_is_whole_and_leads_somewhere(page: Path) -> None:
    assert wrong_paths(page.read_text("utf-8")) == []


def test_a_path_that_is_not_whole_is_found() -> None:
    text = "`vecmill/mill.py`, `mill.py`, `vecmill/gone/`, `/v1/embeddings`, `Mill.run`, `tests/arch/`"
    assert wrong_paths(text) == ["mill.py", "vecmill/gone/"]


def test_the_map_is_short() -> None:
    assert len(MAP.read_text("utf-8").splitlines()) <= 200


@pytest.mark.parametrize(
    "lock",
    [SERVE_LOCK, MODEL_LOCK, TEST_LOCK, *CLIENT_LOCKS, *PEER_LOCKS, *TOOL_LOCKS, *IMAGE_LOCKS],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_locks_pin_versions_and_contents(lock: Path) -> None:
    entries = pinned(lock)
    assert entries
    assert [
        name for name, entry in entries.items() if "==" not in entry or "--hash=sha256:" not in entry
    ] == []


def test_each_group_of_clients_has_a_lock() -> None:
    asked = sorted((ROOT / "tests/clients/environments").glob("*.in"))
    assert [path.with_suffix(".txt") for path in asked] == CLIENT_LOCKS
    for path, lock in zip(asked, CLIENT_LOCKS, strict=True):
        lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
        assert {requirement_name(line) for line in lines} - set(pinned(lock)) == set(), path


def test_the_serving_lock_holds_what_the_packages_ask_for() -> None:
    asked = {requirement_name(line) for path in (LIBRARY, SERVICE) for line in project(path)["dependencies"]}
    assert asked - {"vecmill"} - set(pinned(SERVE_LOCK)) == set()


def test_the_tests_run_on_the_versions_that_are_served() -> None:
    served, tested = pinned(SERVE_LOCK), pinned(TEST_LOCK)
    assert {name: entry for name, entry in served.items() if tested.get(name) != entry} == {}


def test_serving_needs_no_torch() -> None:
    assert NOT_SERVED & set(pinned(SERVE_LOCK)) == set()
    assert NOT_SERVED & {requirement_name(line) for line in project(LIBRARY)["dependencies"]} == set()


def added_extras() -> list[str]:
    """What `make serve EXTRAS=...` has added to the serving environment."""
    file = ROOT / ".venv/extras"
    return file.read_text("utf-8").split() if file.exists() else []


def test_no_torch_was_installed_for_serving() -> None:
    folders = [str(path) for path in (ROOT / ".venv/serve/lib").glob("python3*/site-packages")]
    if not (ROOT / ".venv/serve/ready").exists():
        pytest.skip("`make serve-env` has not been run here")
    if {"torch", "neuron"} & set(added_extras()):
        pytest.skip("an extra with torch was added with EXTRAS")
    installed = {
        canonical(found.metadata["Name"]) for found in distributions(path=[str(path) for path in folders])
    }
    assert "vecmill-server" in installed
    assert NOT_SERVED & installed == set()


def test_locks_name_no_package_host() -> None:
    for path in (
        SERVE_LOCK,
        MODEL_LOCK,
        TEST_LOCK,
        *CLIENT_LOCKS,
        *PEER_LOCKS,
        *TOOL_LOCKS,
        *IMAGE_LOCKS,
        ROOT / "tests/torch.txt",
    ):
        assert "://" not in path.read_text("utf-8"), path


@pytest.mark.parametrize("lock", NPM_LOCKS, ids=lambda path: f"{path.parts[-3]}/{path.parts[-2]}")
def test_locks_of_npm_pin_contents_and_name_no_package_host(lock: Path) -> None:
    packages = json.loads(lock.read_text("utf-8"))["packages"]
    assert [name for name, entry in packages.items() if name and not entry.get("integrity")] == []
    for name, entry in packages.items():
        entry.pop("funding", None)  # where their authors are thanked
        assert "://" not in json.dumps(entry), name
