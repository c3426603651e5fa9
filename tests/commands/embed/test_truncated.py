"""`vecmill embed` says at its end how many texts were cut, by a server and after a stop too."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from support.corpora import write_corpus
from support.http_server import serve_in_thread
from vecmill.commands import main as cli
from vecmill.commands.embed import pipeline
from vecmill.commands.embed.parts import PartStore, folder_of
from vecmill.commands.embed.sources import PART_TEXTS

LONG = "cat " * 600
SAID = "Texts cut to the longest input of the model: "


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli.main, ["embed", *map(str, arguments)], prog_name="vecmill")
    assert done.exit_code == 0, done.output
    return done.output.splitlines()[-1]


def corpus_of(folder: Path, texts: list[str]) -> Path:
    return write_corpus(folder / "corpus.jsonl", [{"text": text} for text in texts])


def test_the_last_line_has_the_number(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [LONG, "a cat", LONG])
    assert f"{SAID}2." in run(corpus, "-o", tmp_path / "a.npy", "--engine", "fake")
    with serve_in_thread() as server:
        address = f"http://127.0.0.1:{server.port}"
        assert f"{SAID}2." in run(corpus, "-o", tmp_path / "b.npy", "--server", address)


def test_nothing_is_said_of_nothing(tmp_path: Path) -> None:
    assert SAID not in run(corpus_of(tmp_path, ["a cat"]), "-o", tmp_path / "a.npy", "--engine", "fake")


def test_parts_of_an_earlier_run_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, output = corpus_of(tmp_path, [LONG] * (PART_TEXTS + 3)), tmp_path / "a.npy"

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PartStore, "finish", fail)
        CliRunner().invoke(cli.main, ["embed", str(corpus), "-o", str(output), "--engine", "fake"])
    assert list(folder_of(output).glob("part-*"))

    def refuse(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(pipeline, "_embed_part", refuse)
    assert f"{SAID}{PART_TEXTS + 3}." in run(corpus, "-o", output, "--engine", "fake")
