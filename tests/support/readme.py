"""README.md, and the surroundings that its commands need: a hub with its model, and a clean environment."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.fake_hub import Repository, run_fake_hub
from support.source_tree import ROOT
from support.tiny_models import save_tiny_bert

README = ROOT / "README.md"
MODEL = "BAAI/bge-small-en-v1.5"
# `make test` runs the tests of the page, so these commands are left out of them.
CHECKS = ("make test", "make check")


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
    left_out = ("VECMILL_", "HF_", "MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **settings}
