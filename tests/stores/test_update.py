"""`vecmill embed --update`: only texts that the earlier output lacks are embedded."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from stores.counted_server import CountedTexts, serve_counted
from stores.store_places import write_lines
from vecmill.commands.main import main

ROWS: list[dict[str, Any]] = [{"id": at, "text": f"text {at}"} for at in range(300)]
CHUNKED = ("--chunking", "chunks", "--chunk-tokens", "4")


@pytest.fixture
def server() -> Iterator[tuple[str, CountedTexts]]:
    with serve_counted() as found:
        yield found


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["embed", *map(str, arguments)], prog_name="vecmill")


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def changed() -> list[dict[str, Any]]:
    """The rows in another order, with some new ones and without some."""
    rows = [{**row} for row in reversed(ROWS[:280])]
    rows[5]["text"] = "another text"
    rows[9]["id"] = "moved"
    return [*rows, {"id": 999, "text": "a new text"}]


def test_only_new_texts_are_embedded(server: tuple[str, CountedTexts], tmp_path: Path) -> None:
    url, counted = server
    corpus, output = write_lines(tmp_path / "c.jsonl", ROWS), tmp_path / "v.parquet"
    assert run(corpus, "-o", output, "--update", "--server", url).exit_code == 0
    before = output.stat().st_ino
    write_lines(corpus, changed())
    counted.counts.clear()
    done = run(corpus, "-o", output, "--update", "--server", url)
    assert done.exit_code == 0, done.output
    assert sorted(counted.counts) == ["a new text", "another text"]
    assert "2 texts were embedded" in done.output
    assert "279 in an earlier run" in done.output
    assert output.stat().st_ino != before
    clean = tmp_path / "clean.parquet"
    assert run(corpus, "-o", clean, "--update", "--server", url).exit_code == 0
    assert rows_of(output) == rows_of(clean)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.jsonl", "clean.parquet", "v.parquet"]


def test_an_output_without_digests_is_read_by_its_texts(
    server: tuple[str, CountedTexts], tmp_path: Path
) -> None:
    url, counted = server
    corpus, output = write_lines(tmp_path / "c.jsonl", ROWS), tmp_path / "v.parquet"
    run(corpus, "-o", output, "--copy-column", "text", "--server", url)
    counted.counts.clear()
    write_lines(corpus, changed())
    done = run(corpus, "-o", output, "--copy-column", "text", "--update", "--server", url)
    assert done.exit_code == 0, done.output
    assert sorted(counted.counts) == ["a new text", "another text"]


def test_chunks_are_taken_over(tmp_path: Path) -> None:
    corpus, output = write_lines(tmp_path / "c.jsonl", ROWS), tmp_path / "v.parquet"
    options = (*CHUNKED, "--engine", "fake", "--update")
    assert run(corpus, "-o", output, *options).exit_code == 0
    write_lines(corpus, changed())
    done = run(corpus, "-o", output, *options)
    assert "2 texts were embedded" in done.output
    clean = tmp_path / "clean.parquet"
    run(corpus, "-o", clean, *options)
    assert rows_of(output) == rows_of(clean)


def test_another_prompt_or_chunking_is_embedded_again(tmp_path: Path) -> None:
    corpus, output = write_lines(tmp_path / "c.jsonl", ROWS[:20]), tmp_path / "v.parquet"
    run(corpus, "-o", output, "--engine", "fake", "--update")
    done = run(corpus, "-o", output, "--engine", "fake", "--update", *CHUNKED)
    assert "20 texts were embedded" in done.output


def test_another_space_is_refused_with_both_named(server: tuple[str, CountedTexts], tmp_path: Path) -> None:
    corpus, output = write_lines(tmp_path / "c.jsonl", ROWS), tmp_path / "v.parquet"
    run(corpus, "-o", output, "--update", "--server", server[0])
    kept = output.read_bytes()
    done = run(corpus, "-o", output, "--update", "--engine", "fake")
    about = json.loads(parquet.read_schema(output).metadata[b"vecmill"])
    assert done.exit_code == 2
    assert (
        f"has vectors of the space {about['space']}, made by 'digests', but the new ones are of s1-"
        in done.output
    )
    assert output.read_bytes() == kept


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        (None, "is no Parquet file"),
        ({}, "has vectors that vecmill did not write"),
        ({"vecmill": "[" * 100_000}, "has vectors that vecmill did not write"),
    ],
    ids=["no Parquet", "nothing", "deep"],
)
def test_a_file_of_another_program_stays(metadata: dict[str, str] | None, told: str, tmp_path: Path) -> None:
    import pyarrow as pa

    corpus, output = write_lines(tmp_path / "c.jsonl", ROWS), tmp_path / "v.parquet"
    if metadata is None:
        output.write_bytes(b"no Parquet")
    else:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0]), 2)
        parquet.write_table(pa.table({"embedding": vectors}).replace_schema_metadata(metadata), output)
    content = output.read_bytes()
    done = run(corpus, "-o", output, "--update", "--engine", "fake")
    assert done.exit_code == 2
    assert told in done.output
    assert output.read_bytes() == content


def test_an_output_that_cannot_be_updated_is_refused(
    server: tuple[str, CountedTexts], tmp_path: Path
) -> None:
    corpus, output = write_lines(tmp_path / "c.jsonl", ROWS), tmp_path / "v.parquet"
    assert "--update needs a .parquet file" in run(corpus, "-o", tmp_path / "v.npy", "--update").output
    run(corpus, "-o", output, "--server", server[0])
    told = run(corpus, "-o", output, "--update", "--server", server[0]).output
    assert "has neither a column 'content_digest' nor the texts in a column 'text'" in told
