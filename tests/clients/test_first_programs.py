"""The programs of docs/compatibility.md print what they should, each with the package that it names."""

import re
import subprocess
from pathlib import Path

import pytest

from support.client_packages import NODE, NPM_SCRIPT, run_program
from support.server import LiveServer
from support.source_tree import ROOT

PAGE = (ROOT / "docs/compatibility.md").read_text("utf-8")
BLOCK = r"^(\w[^,\n]*), `(?:pip|npm) install [^`]*`[^\n]*:\n\n```(?:python|javascript)\n(.*?)^```"
PROGRAMS: dict[str, str] = dict(re.findall(BLOCK, PAGE, flags=re.MULTILINE | re.DOTALL))
GROUPS = {
    "LangChain": "langchain",
    "LlamaIndex": "llama-index",
    "Haystack": "haystack",
    "LiteLLM": "litellm",
}
JAVASCRIPT = "OpenAI's package for JavaScript"
WRITTEN_URL = "http://127.0.0.1:7997"


def program_of(name: str, server: LiveServer) -> str:
    """The program as the page has it, for the address of a running server."""
    assert WRITTEN_URL in PROGRAMS[name]
    return PROGRAMS[name].replace(WRITTEN_URL, server.url)


def test_each_program_of_the_page_is_run() -> None:
    assert set(PROGRAMS) == {*GROUPS, JAVASCRIPT}


@pytest.mark.full
@pytest.mark.parametrize("name", GROUPS)
def test_a_program_finds_the_text(name: str, server: LiveServer, tmp_path: Path) -> None:
    printed = run_program(GROUPS[name], program_of(name, server), tmp_path)
    assert printed.splitlines()[-1] == "Cats sleep anywhere."


def test_the_program_in_javascript_gets_the_embeddings(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(NPM_SCRIPT.parent / "node_modules")
    (tmp_path / "first.mjs").write_text(program_of(JAVASCRIPT, server), "utf-8")
    line = [str(NODE), "first.mjs"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "384"]
