"""README.md from top to bottom in a fresh clone, with an empty home and only what the page installs."""

import subprocess
from pathlib import Path

import pytest

from support.readme import LANGCHAIN, environment_of_new_user
from support.shell_session import read_blocks, shell_session
from support.source_tree import ROOT

pytestmark = [pytest.mark.full, pytest.mark.alone]

# `make test` installs all that it needs, and then runs one file: this test is itself a part of the tests.
FEWER_TESTS = {"make test": 'make test ARGS="tests/docs/test_readme.py"'}


def clone_of_this_checkout(folder: Path) -> Path:
    """Clone the commit that is checked out. Skips the test if this is not a checkout of git."""
    clone = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)]
    done = subprocess.run(clone, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"not a git checkout: {done.stderr}")
    return folder


def test_each_block_of_the_readme_runs_in_a_fresh_clone(tmp_path: Path) -> None:
    """Packages come from the package indexes."""
    clone = clone_of_this_checkout(tmp_path / "clone")
    environment = environment_of_new_user(tmp_path / "home", {})
    with shell_session(clone, environment, not_run={}, replaced=FEWER_TESTS) as session:
        for block in read_blocks((clone / "README.md").read_text("utf-8")):
            session.run(block)
    assert session.done[0] == "make serve"
    assert {*FEWER_TESTS, "make shell", "pip install openai", LANGCHAIN.install} <= set(session.done)
    assert not session.left_out
