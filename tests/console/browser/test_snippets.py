"""Every program that the console shows runs as it is, and gets what the page got."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.browser.console_browser import ConsoleBrowser
from support.client_packages import NODE, SILENCE, ensure_environment

VIEWS = ("try", "try/rerank", "try/classify", "try/entities")
# Where the client packages of a language are.
GROUPS = {"LangChain": {"try": "langchain", "try/rerank": "langchain-providers"}}


def run(language: str, view: str, program: str, folder: Path) -> str:
    """What a program prints."""
    commands: dict[str, list[Any]] = {
        "curl": ["sh", "-c", program],
        "JavaScript": [NODE, "--input-type=module", "-e", program],
        "Python (openai)": [sys.executable, "-c", program],
    }
    if language not in commands:
        python = ensure_environment(GROUPS[language][view]) / "bin/python"
        commands[language] = [python, "-c", program]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **SILENCE}
    done = subprocess.run(
        commands[language],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, f"{language}: {done.stderr}"
    return done.stdout


def drop_ids(answer: Any) -> Any:
    """An answer without what differs from request to request."""
    return (
        {k: v for k, v in answer.items() if k not in ("id", "created")}
        if isinstance(answer, dict)
        else answer
    )


@pytest.mark.parametrize("view", VIEWS)
def test_programs_run_as_they_are(browser: ConsoleBrowser, view: str, tmp_path: Path) -> None:
    browser.open(view)
    browser.submit()
    snippets = browser.snippets()
    expected = {"curl", "JavaScript", "Python (openai)"} | (
        {"LangChain"} if view in GROUPS["LangChain"] else set()
    )
    assert set(snippets) == expected
    printed = {language: run(language, view, program, tmp_path) for language, program in snippets.items()}
    answer = json.loads(printed["curl"])
    assert "error" not in answer
    if view == "try":
        assert (
            printed["Python (openai)"].strip()
            == printed["LangChain"].strip()
            == "5 embeddings of 384 numbers"
        )
        assert len(answer["data"]) == 5
    else:
        assert drop_ids(ast.literal_eval(printed["Python (openai)"])) == drop_ids(answer)
    if view == "try/rerank":
        found = ast.literal_eval(printed["LangChain"])
        assert [each["index"] for each in found] == [each["index"] for each in answer["results"]]


def test_a_program_can_be_copied(browser: ConsoleBrowser) -> None:
    browser.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = browser.open("try")
    browser.submit()
    snippets = browser.snippets()
    page.get_by_role("button", name="Copy").click()
    page.wait_for_selector("button:text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == list(snippets.values())[-1]
