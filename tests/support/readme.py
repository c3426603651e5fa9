"""README.md, and the surroundings that its commands need: a hub with its model, and a clean environment."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from support.fake_hub import Repository, run_fake_hub
from support.source_tree import ROOT
from support.tiny_models import save_tiny_bert

README = ROOT / "README.md"
MODEL = "BAAI/bge-small-en-v1.5"
DRAWING = MappingProxyType({"mermaid": "a drawing"})
# Settings of this process that a new terminal does not have. `make test ARGS=...` sets ARGS for each `make`
# that the tests start.
LEFT_OUT = ("VECMILL_", "HF_", "MAKE", "MFLAGS", "ARGS", "EXTRAS", "WORKERS", "PYTHON", "VIRTUAL_ENV")


@contextmanager
def run_hub_of_readme(folder: Path) -> Iterator[Mapping[str, str]]:
    """Run a hub on loopback that has a tiny model with the name of the page's model.

    Yields the environment variables that lead the hub's client there, with its cache in `folder`.
    """
    directory = save_tiny_bert(folder / "small")
    files = {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    with run_fake_hub() as hub:
        hub.repositories[MODEL] = Repository(files)
        yield {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hub"), "NO_PROXY": "127.0.0.1"}


def clean_environment(programs: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which the programs of the folder `programs` come first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **settings}


def environment_of_new_user(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a terminal with an empty home, without the programs of this interpreter.

    The settings with which pip and npm reach their indexes on this machine are kept. pip installs into
    virtual environments only, so that no block can change this machine.
    """
    home.mkdir()
    own = str(Path(sys.prefix) / "bin")
    path = os.pathsep.join(entry for entry in os.environ["PATH"].split(os.pathsep) if entry != own)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith((*LEFT_OUT, "XDG_CACHE"))
    }
    indexes = {
        variable: str(file)
        for variable, file in (
            ("PIP_CONFIG_FILE", Path.home() / ".config/pip/pip.conf"),
            ("NPM_CONFIG_USERCONFIG", Path.home() / ".npmrc"),
        )
        if file.exists() and variable not in kept
    }
    changed = {"HOME": str(home), "PATH": path, "SHELL": "/bin/sh", "PIP_REQUIRE_VIRTUALENV": "1"}
    return {**kept, **indexes, **changed, **settings}
