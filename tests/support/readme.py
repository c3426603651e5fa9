"""README.md, and the environments in which its blocks run."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.source_tree import ROOT

README = ROOT / "README.md"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A program of the page by its first line, and the command that installs what it needs."""

    install: str
    program: str


LANGCHAIN = Snippet("pip install langchain-openai", "from langchain_openai import OpenAIEmbeddings")
# Settings of this process that a new terminal does not have. `make test ARGS=...` sets ARGS for each `make`
# that the tests start.
LEFT_OUT = ("VECMILL_", "HF_", "MAKE", "MFLAGS", "ARGS", "EXTRAS", "WORKERS", "PYTHON", "VIRTUAL_ENV")


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
