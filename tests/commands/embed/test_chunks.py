"""`vecmill embed --chunking`: a row for each chunk with its place, here or by a server, after a stop too."""

import json
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from support.corpora import read_column, read_rows, write_corpus
from support.http_server import serve_in_thread
from vecmill import Embed, MillConfig, SyncMill
from vecmill.bulk.embedder import EmbedParameters
from vecmill.bulk.remote import RemoteEmbedder
from vecmill.commands import main as cli
from vecmill.commands.embed.parts import PartStore, folder_of
from vecmill.errors import InvalidConfig, ServerFailed
from vecmill.requests import Chunking, ChunkingMode

WORDS = ("cat", "dog", "日本", "😀")
SHORT_PART = 32
COUNT = SHORT_PART + 20
TEXTS = [" ".join(WORDS[: 1 + number % 4] * (number % 5)) for number in range(COUNT)]
CHUNKING = Chunking(ChunkingMode.CHUNKS, 6, 2)
CHUNKED = ("--chunking", "chunks", "--chunk-tokens", 6, "--chunk-overlap", 2)
COLUMNS = ("chunk_index", "chunk_start", "chunk_end", "chunk_tokens")


def run(*arguments: object) -> Result:
    line = ["embed", *map(str, arguments)]
    return CliRunner().invoke(cli.main, line, prog_name="vecmill", catch_exceptions=False)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"id": f"n{number}", "text": text} for number, text in enumerate(TEXTS)]
    return write_corpus(tmp_path / "corpus.jsonl", rows)


@pytest.fixture(scope="module")
def expected() -> Any:
    with SyncMill(config=MillConfig(engine="fake")) as mill:
        return mill.run(Embed(tuple(TEXTS), chunking=CHUNKING))


def check(output: Path, expected: Any) -> None:
    """The output has the chunks of all texts, each with the copies and the place of its text."""
    np.testing.assert_array_equal(read_rows(output), expected.embeddings)
    assert read_column(output, "id") == [f"n{chunk.text}" for chunk in expected.chunks]
    assert read_column(output, "input_row") == [chunk.text + 1 for chunk in expected.chunks]
    places = [read_column(output, name) for name in COLUMNS]
    assert list(zip(*places, strict=True)) == [
        (one.index, one.start, one.end, one.token_count) for one in expected.chunks
    ]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_each_chunk_has_a_row_and_its_place(suffix: str, corpus: Path, tmp_path: Path, expected: Any) -> None:
    output = tmp_path / f"vectors{suffix}"
    done = run(corpus, "-o", output, *CHUNKED, "--engine", "fake")
    assert f"{len(expected.chunks):,} embeddings of the chunks of {COUNT} texts, of 384" in done.output
    check(output, expected)
    if suffix == ".parquet":
        about = json.loads(parquet.read_schema(output).metadata[b"vecmill"])
        assert about["chunking"] == {"mode": "chunks", "tokens": 6, "overlap": 2}
        assert about["space"].startswith("s1-")
        assert "truncated_tokens" not in parquet.read_schema(output).names


@pytest.mark.parametrize("mode", ChunkingMode)
def test_the_space_of_chunks_stands_with_them_and_no_text_is_too_long(
    mode: ChunkingMode, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", [{"text": "cat " * 300}])
    output = tmp_path / "vectors.parquet"
    done = run(corpus, "-o", output, "--chunking", mode, "--on-long-input", "error", "--engine", "fake")
    assert done.exit_code == 0, done.output
    assert "cut to" not in done.output
    about = json.loads(parquet.read_schema(output).metadata[b"vecmill"])
    with SyncMill(config=MillConfig(engine="fake")) as mill:
        assert (about["space"] == mill.identity.space) is (mode is not ChunkingMode.LATE)
    assert about["chunking"]["mode"] == mode
    if mode is ChunkingMode.POOLED:
        assert read_column(output, "truncated_tokens") == [0]


def test_a_server_gives_the_same_chunks(corpus: Path, tmp_path: Path, expected: Any) -> None:
    with serve_in_thread() as server:
        url = f"http://127.0.0.1:{server.port}"
        done = run(corpus, "-o", tmp_path / "vectors.parquet", *CHUNKED, "--server", url)
        assert done.exit_code == 0, done.output
        check(tmp_path / "vectors.parquet", expected)


def test_a_pooled_text_has_one_row(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "vectors.npy"
    done = run(corpus, "-o", output, "--chunking", "pooled", "--chunk-tokens", 6, "--engine", "fake")
    assert f"{COUNT} embeddings of 384" in done.output
    with SyncMill(config=MillConfig(engine="fake")) as mill:
        pooled = mill.run(Embed(tuple(TEXTS), chunking=Chunking(ChunkingMode.POOLED, 6)))
    np.testing.assert_array_equal(read_rows(output), pooled.embeddings)


@pytest.mark.parametrize("damage", [False, True])
def test_a_stopped_run_goes_on(
    damage: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: Any
) -> None:
    output = tmp_path / "vectors.parquet"

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PartStore, "finish", fail)
        assert run(corpus, "-o", output, *CHUNKED, "--engine", "fake").exit_code == 130
    first, second = sorted(folder_of(output).glob("part-*"))
    if damage:
        first.write_bytes(second.read_bytes())  # a part of another number of texts
    other = run(corpus, "-o", output, "--engine", "fake")
    assert (other.exit_code, "another chunking" in other.output) == (2, True)
    assert run(corpus, "-o", output, *CHUNKED, "--engine", "fake").exit_code == 0
    check(output, expected)


def test_texts_that_fail_are_left_out_with_their_chunks(tmp_path: Path) -> None:
    rows = [{"text": "a cat"}, {"text": "\ud800"}, {"text": "a dog"}]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "vectors.jsonl"
    done = run(corpus, "-o", output, *CHUNKED, "--engine", "fake", "--skip-invalid")
    assert done.exit_code == 0, done.output
    assert read_column(output, "input_row") == [1, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--chunk-tokens", 5), "have no effect without --chunking"),
        (("--chunking", "chunks", "--chunk-tokens", 5, "--chunk-overlap", 5), "must be less"),
        (("--chunking", "chunks", "--chunk-tokens", 100_000), "reads 254 tokens"),
        (("--chunking", "late", "--copy-column", "chunk_index"), "describes the chunks"),
    ],
)
def test_options_that_cannot_be_are_refused_at_the_start(
    options: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", [{"text": "a", "chunk_index": 1}])
    done = run(corpus, "-o", tmp_path / "vectors.jsonl", *options, "--engine", "fake")
    assert (done.exit_code, message in done.output) == (2, True), done.output


def test_an_output_of_numbers_alone_is_refused(corpus: Path, tmp_path: Path) -> None:
    done = run(corpus, "-o", tmp_path / "vectors.npy", *CHUNKED, "--engine", "fake")
    assert (done.exit_code, "cannot hold the places" in done.output) == (2, True)


def remote(chunks: list[dict[str, Any]]) -> RemoteEmbedder:
    """An embedder of a server that answers every request with these entries."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        data = [{"embedding": "AACAPwAAgD8=", **entry} for entry in chunks]
        return httpx2.Response(200, json={"model": "m", "data": data, "usage": {}})

    client = httpx2.AsyncClient(base_url="http://server/v1", transport=httpx2.MockTransport(answer))
    return RemoteEmbedder(client, "m", EmbedParameters(chunking=CHUNKING))


def entry(text: int, index: int) -> dict[str, Any]:
    return {"index": text, "chunk": {"index": index, "start": 0, "end": 1, "token_count": 1}}


async def test_a_server_without_chunking_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="ignores --chunking"):
        await remote([{"index": 0}]).probe()


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [{"index": 0}, {"index": 1}],
        [entry(0, 0)],
        [entry(0, 0), entry(0, 2), entry(1, 0)],
        [entry(1, 0), entry(0, 0)],
        [entry(0, 0), entry(1, 0), entry(2, 0)],
    ],
)
async def test_chunks_that_cannot_be_are_an_error(chunks: list[dict[str, Any]]) -> None:
    with pytest.raises(ServerFailed):
        await remote(chunks).embed(["a", "b"])


async def test_chunks_come_in_the_order_of_the_texts() -> None:
    found = await remote([entry(0, 0), entry(0, 1), entry(1, 0)]).embed(["a", "b"])
    assert found.chunks is not None
    assert found.chunks.tolist() == [[0, 0, 0, 1, 1], [0, 1, 0, 1, 1], [1, 0, 0, 1, 1]]
    assert found.embeddings.tolist() == [[1.0, 1.0]] * 3
