"""`vecmill embed` tells which texts were cut and by how many tokens, by a server and after a stop too."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from support.corpora import write_corpus
from support.http_server import serve_in_thread
from vecmill.bulk import pipeline
from vecmill.commands import main as cli
from vecmill.commands.embed.parts import PartStore, folder_of

SHORT_PART = 32
LONG = "cat " * 600
LOST = 602 - 256
SAID = "Texts cut to the longest input of the model: "


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli.main, ["embed", *map(str, arguments)], prog_name="vecmill")
    assert done.exit_code == 0, done.output
    return done.output.splitlines()[-1]


def corpus_of(folder: Path, texts: list[str]) -> Path:
    return write_corpus(folder / "corpus.jsonl", [{"text": text} for text in texts])


def test_the_last_line_has_the_number(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [LONG, "a cat", LONG])
    said = f"{SAID}2, by {2 * LOST} tokens in all."
    assert said in run(corpus, "-o", tmp_path / "a.npy", "--engine", "fake")
    with serve_in_thread() as server:
        address = f"http://127.0.0.1:{server.port}"
        assert said in run(corpus, "-o", tmp_path / "b.npy", "--server", address)


@pytest.mark.promise("truncation-told")
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("is_remote", [False, True])
def test_each_text_has_the_number_of_its_lost_tokens(tmp_path: Path, suffix: str, is_remote: bool) -> None:
    output, texts = tmp_path / f"a{suffix}", [LONG, "a cat", "cat " * 254, "cat " * 30_000]
    corpus = corpus_of(tmp_path, texts)
    if is_remote:
        with serve_in_thread() as server:
            run(corpus, "-o", output, "--server", f"http://127.0.0.1:{server.port}")
    else:
        run(corpus, "-o", output, "--engine", "fake")
    if suffix == ".parquet":
        found = parquet.read_table(output)["truncated_tokens"].to_pylist()
    else:
        found = [json.loads(line)["truncated_tokens"] for line in output.read_text().splitlines()]
    assert found == [LOST, 0, 0, 30_002 - 256]


def test_a_text_that_must_not_be_cut_ends_the_run_or_is_left_out(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, ["a cat", LONG])
    local, refuse = ("--engine", "fake"), ("--on-long-input", "error")
    with serve_in_thread() as server:
        for where in (local, ("--server", f"http://127.0.0.1:{server.port}")):
            arguments = [str(corpus), "-o", str(tmp_path / "a.npy"), *where, *refuse]
            done = CliRunner().invoke(cli.main, ["embed", *arguments])
            assert done.exit_code == 2
            assert "line 2" in done.output
            assert "602 tokens" in done.output
            assert "1 embeddings" in run(*arguments, "--skip-invalid")
            (tmp_path / "a.npy").unlink()


def test_a_column_of_the_name_is_not_copied(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", [{"text": "a", "truncated_tokens": 1}])
    arguments = [str(corpus), "-o", str(tmp_path / "a.jsonl"), "--copy-column", "truncated_tokens"]
    done = CliRunner().invoke(cli.main, ["embed", *arguments, "--engine", "fake"])
    assert done.exit_code == 2
    assert "truncated_tokens" in done.output


def test_nothing_is_said_of_nothing(tmp_path: Path) -> None:
    assert SAID not in run(corpus_of(tmp_path, ["a cat"]), "-o", tmp_path / "a.npy", "--engine", "fake")


def test_parts_of_an_earlier_run_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, output = corpus_of(tmp_path, [LONG] * (SHORT_PART + 3)), tmp_path / "a.npy"

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PartStore, "finish", fail)
        CliRunner().invoke(cli.main, ["embed", str(corpus), "-o", str(output), "--engine", "fake"])
    assert list(folder_of(output).glob("part-*"))

    def refuse(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(pipeline, "_embed_part", refuse)
    count = SHORT_PART + 3
    assert f"{SAID}{count}, by {count * LOST:,} tokens in all." in run(
        corpus, "-o", output, "--engine", "fake"
    )
