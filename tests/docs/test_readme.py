"""README.md from top to bottom: each block runs, in its order, and does what the page says."""

import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from support.git_files import copy_kept_files
from support.readme import INSTALL_LANGCHAIN, README, USE_LANGCHAIN, environment_of_new_user
from support.shell_session import Block, ShellSession, read_blocks, shell_session

# tests/installation/test_fresh_clone.py runs these too.
NOT_RUN = {
    "make test": "it runs this test",
    INSTALL_LANGCHAIN: "LangChain is not in the environment of the tests",
    USE_LANGCHAIN: "LangChain is not in the environment of the tests",
}
# Neither this machine's settings of pip nor an index: a package that is missing cannot be installed.
NO_INDEX = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}

PROGRAM = '#!/bin/sh\nexec "{python}" {module} "$@"\n'
# Whatever `make` would install here would be installed into the environment of this test.
PYTHON = """#!/bin/sh
case "$1 $2" in "-m pip" | "-m venv") echo "make installs something" >&2; exit 1 ;; esac
exec "{python}" "$@"
"""


def make_installed_clone(folder: Path) -> Path:
    """Copy the sources, with an environment in which `make` finds everything installed.

    The programs of the environment are those of this interpreter, which has what the page installs.
    """
    copy_kept_files(folder)
    programs = folder / ".venv/serve/bin"
    programs.mkdir(parents=True)
    scripts = {
        "python": PYTHON.format(python=sys.executable),
        "pip": PROGRAM.format(python=sys.executable, module="-m pip"),
        "vecmill": PROGRAM.format(python=sys.executable, module="-m vecmill"),
    }
    for name, script in scripts.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    (folder / ".venv/extras").write_text("corpus openvino\n")
    (folder / ".venv/serve/ready").touch()
    return folder


def test_the_page_begins_with_what_works_in_a_clone() -> None:
    page = README.read_text("utf-8")
    serve, ask, answer, *others = read_blocks(page)
    assert serve.text == "make serve\n"
    assert serve.line <= 25
    assert ask.text.startswith("curl ")
    assert answer.language == "json"
    assert others[-1].text == "make test\n"


def test_the_page_is_read_in_a_minute_and_has_its_parts_in_order() -> None:
    page = README.read_text("utf-8")
    assert len(page.splitlines()) <= 150
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert headings == [
        "Run it",
        "Use it",
        "Features",
        "Speed",
        "When not to choose it",
        "Where to read on",
    ]
    assert page.index("](docs/console/") < page.index("## Features")
    assert "**Written, but never run on such hardware:**" in page


def test_each_request_is_followed_by_its_answer() -> None:
    following = [
        after for block, after in pairwise(read_blocks(README.read_text("utf-8"))) if "curl" in block.text
    ]
    assert following
    assert {block.language for block in following} == {"json"}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_installed_clone(tmp_path_factory.mktemp("installed") / "clone")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_each_block_runs_in_its_order(
    clone: Path, tmp_path: Path, kept_models: Path, user_caches: Path
) -> None:
    """In the environment of the tests, which has what the page installs."""
    blocks = read_blocks(README.read_text("utf-8"))
    settings = {"VECMILL_CACHE_DIR": str(kept_models), "XDG_CACHE_HOME": str(user_caches), **NO_INDEX}
    if "PYTHONPATH" in os.environ:
        settings["PYTHONPATH"] = os.environ["PYTHONPATH"]
    environment = environment_of_new_user(tmp_path / "home", settings)
    with shell_session(clone, environment, not_run=NOT_RUN) as session:
        for block in blocks:
            session.run(block)
    assert set(session.left_out) == set(NOT_RUN)
    commands = [command for block in blocks if block.language == "sh" for command in block.commands]
    programs = [block for block in blocks if block.language == "python"]
    assert len(session.done) + len(session.left_out) == len(commands) + len(programs)
    assert {"make serve", "make shell"} <= set(session.done)


def test_what_has_to_be_installed_is_not_installed_here(clone: Path, tmp_path: Path) -> None:
    environment = environment_of_new_user(tmp_path / "home", NO_INDEX)
    session = ShellSession(clone, environment)
    installs = "pip install 'vecmill-server[minilm]'"
    for commands in ([installs], ["make shell", installs], ["make serve-env EXTRAS=torch"]):
        with pytest.raises(AssertionError, match="install"):
            session.run(Block(1, "sh", "\n".join(commands)))


def test_commands_are_read_with_their_continued_lines_and_without_comments() -> None:
    block = Block(1, "sh", "curl a \\\n  -d b\n# a remark\n\nmake serve   # a remark\necho '# no remark'\n")
    assert block.commands == ["curl a \\\n  -d b", "make serve", "echo '# no remark'"]


@pytest.mark.parametrize(
    "fence", ["```\nmake serve\n```", "```sh\nmake serve\n", "- x\n  ```sh\n  a\n  ```\n"]
)
def test_a_block_that_cannot_be_read_is_not_passed_over(fence: str) -> None:
    with pytest.raises(ValueError, match="fence"):
        read_blocks(f"```sh\nmake test\n```\n\n{fence}\n")


def test_a_block_of_another_language_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1: blocks of 'bash' cannot be run"):
        ShellSession(tmp_path, {}).run(Block(1, "bash", "make serve\n"))
