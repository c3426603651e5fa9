"""README.md from top to bottom: each block runs, in its order, and does what the page says."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from support.readme import CHECKS, MODEL, README, clean_environment, run_hub_of_readme
from support.shell_session import Block, read_blocks, shell_session

# `tests/installation` runs these commands too.
INSTALLATIONS = ("pip install", "make serve", "make shell")


def write_programs(folder: Path) -> Path:
    """Write the programs that an installation brings, for the interpreter of this test."""
    folder.mkdir()
    for name, arguments in (("vecmill", ' -m vecmill "$@"'), ("python", ' "$@"')):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments}\n')
        program.chmod(0o755)
    return folder


def test_the_page_begins_with_what_a_new_user_needs() -> None:
    page = README.read_text("utf-8")
    install, serve, ask, answer = read_blocks(page)[:4]
    assert install.text.startswith("pip install 'vecmill-server")
    assert serve.text == f"vecmill serve {MODEL}\n"
    assert ask.text.startswith("curl ")
    assert answer.language == "json"
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings[:2] == ["## Install", "## Serve a model"]
    assert {"## Promises", "## Figures", "## Contributing"} <= set(headings[4:])


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_each_block_runs_in_its_order(tmp_path: Path, server_folder: Path) -> None:
    """In the environment of the tests, which has what the page installs."""
    settings = {"VECMILL_CACHE_DIR": str(server_folder / "cache")}
    if "PYTHONPATH" in os.environ:
        settings["PYTHONPATH"] = os.environ["PYTHONPATH"]
    work = tmp_path / "work"
    work.mkdir()
    with run_hub_of_readme(tmp_path) as hub:
        environment = clean_environment(write_programs(tmp_path / "bin"), {**settings, **hub})
        with shell_session(work, environment, (*CHECKS, *INSTALLATIONS)) as session:
            for block in read_blocks(README.read_text("utf-8")):
                session.run(block)
    assert len(session.done) >= 6, session.done
    assert {path.name for path in work.glob("vectors.*")} == {"vectors.npy", "vectors.parquet"}


def test_commands_are_read_with_their_continued_lines_and_without_comments() -> None:
    block = Block(1, "sh", "curl a \\\n  -d b\n# a remark\n\nmake serve   # a remark\necho '# no remark'\n")
    assert block.commands == ["curl a \\\n  -d b", "make serve", "echo '# no remark'"]
