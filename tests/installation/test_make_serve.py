"""`make serve`: what it installs, and what it keeps. Python is a script that takes notes."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from support.source_tree import ROOT

PROJECTS = ("libs/vecmill/pyproject.toml", "services/vecmill_server/pyproject.toml")
FILES = (*PROJECTS, "services/vecmill_server/requirements.lock", "libs/vecmill_minilm/model.lock")

# `python -m venv FOLDER` copies this script to FOLDER/bin/python, beside a `vecmill` that prints its words.
PYTHON = """#!/bin/sh
echo "$*" >> "$NOTES"
for last; do :; done
case "$*" in
    "-m venv"*) rm -rf "$last"; mkdir -p "$last/bin"; cp "$0" "$last/bin/python"
        printf '#!/bin/sh\\necho "vecmill $*"\\n' > "$last/bin/vecmill"; chmod +x "$last/bin/vecmill" ;;
    *"$FAILS"*) exit 1 ;;
    *version_info*) echo "$VERSION" ;;
esac
"""


class Checkout:
    """The Makefile and the files that `make serve` depends on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        shutil.copy(ROOT / "Makefile", folder)
        self.notes = folder / "notes"
        (folder / "python").write_text(PYTHON)
        (folder / "python").chmod(0o755)

    def make(
        self, *arguments: str, typed: str = "", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run make; `typed` is its input. `self.installed` holds the calls of pip afterwards."""
        self.notes.write_text("")
        return subprocess.run(
            ["make", f"PYTHON={self.folder}/python", *arguments],
            env={
                "PATH": os.environ["PATH"],
                "NOTES": str(self.notes),
                "VERSION": "(3, 11)",
                "FAILS": "nothing",
                "SHELL": "/bin/sh",
                **environment,
            },
            cwd=self.folder,
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def installed(self) -> str:
        """The calls of the last `make`."""
        return self.notes.read_text()

    def change_project(self) -> None:
        """Let everything be newer than the environment, as a pulled change of a pyproject is."""
        os.utime(self.folder / ".venv/serve/ready", (0, 0))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_it_installs_once(checkout: Checkout) -> None:
    first = checkout.make("serve", "ARGS=--port 1")
    assert first.stdout.splitlines()[-1] == "vecmill serve --port 1"
    assert "--require-hashes" in checkout.installed
    assert checkout.make("serve").stdout == "vecmill serve\n"
    assert checkout.installed == ""


def test_extras_last(checkout: Checkout) -> None:
    checkout.make("serve")
    checkout.make("serve", "EXTRAS=openvino corpus")
    assert (
        "--editable libs/vecmill[corpus,openvino] --editable services/vecmill_server\n" in checkout.installed
    )
    checkout.make("serve")
    assert checkout.installed == ""
    checkout.make("serve", "EXTRAS=corpus")
    assert checkout.installed == ""
    checkout.make("serve", "EXTRAS=cl100k")
    assert "libs/vecmill[corpus,openvino] --editable services/vecmill_server[cl100k]\n" in checkout.installed
    checkout.change_project()
    checkout.make("serve")
    assert "libs/vecmill[corpus,openvino] --editable services/vecmill_server[cl100k]\n" in checkout.installed


def test_a_changed_project_deletes_nothing_that_was_installed(checkout: Checkout) -> None:
    checkout.make("serve")
    by_hand = checkout.folder / ".venv/serve/installed-by-hand"
    by_hand.touch()
    checkout.change_project()
    checkout.make("serve")
    assert "--editable libs/vecmill" in checkout.installed
    assert by_hand.exists()


@pytest.mark.parametrize("environment", [{"VERSION": "(3, 13)"}], ids=["another Python"])
def test_another_python_gets_a_new_environment_with_the_same_extras(
    checkout: Checkout, environment: dict[str, str]
) -> None:
    checkout.make("serve", "EXTRAS=torch")
    python = checkout.folder / ".venv/serve/bin/python"
    python.write_text("#!/bin/sh\necho '(3, 11)'\n")
    checkout.change_project()
    checkout.make("serve", **environment)
    assert "-m venv --clear .venv/serve\n" in checkout.installed
    assert "libs/vecmill[torch]" in checkout.installed


def test_extras_that_could_not_be_installed_are_not_kept(checkout: Checkout) -> None:
    checkout.make("serve")
    assert checkout.make("serve", "EXTRAS=torch", FAILS="vecmill[torch]").returncode != 0
    assert checkout.make("serve").stdout == "vecmill serve\n"
    assert checkout.installed == ""


def test_an_extra_that_does_not_exist_is_named_with_those_that_do(checkout: Checkout) -> None:
    done = checkout.make("serve", "EXTRAS=openvion corpus")
    assert done.returncode != 0
    assert 'There is no EXTRAS="openvion". Choose from: chroma cl100k corpus' in done.stderr
    known: set[str] = set()
    for name in PROJECTS:
        known |= set(tomllib.loads((ROOT / name).read_text("utf-8"))["project"]["optional-dependencies"])
    offered = done.stderr.partition("Choose from: ")[2].partition(". ")[0].split()
    # `make serve` has a runtime and the model; another wheel of ONNX Runtime takes the place of the runtime.
    assert set(offered) == known - {"cpu", "gpu", "migraphx", "minilm"}


def test_the_shell_knows_the_command(checkout: Checkout) -> None:
    done = checkout.make("shell", typed="vecmill describe\nexit 3\n")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "vecmill describe"
