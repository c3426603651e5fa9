"""Runs into a collection: ids, chunks, other writers, failures, and the command itself."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from qdrant_client import QdrantClient, models

from stores.counted_server import DIM, serve_counted
from stores.store_places import write_lines
from stores.store_readers import read_rows
from vecmill import Chunking, InvalidConfig, InvalidCorpus, MillConfig, ServerFailed, embed_to_store
from vecmill.commands.main import main
from vecmill.stores import parquet_store, qdrant
from vecmill.stores.content_digests import id_of_input
from vecmill.stores.lock_files import lock_collection

ROWS = [{"id": at, "text": f"text {at}"} for at in range(6)]
LONG = " ".join(["cat", "dog", "bird"] * 8)


@pytest.fixture
def url() -> Iterator[str]:
    with serve_counted() as (url, _):
        yield url


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "v.parquet")


def read(file: str) -> dict[str, dict[str, Any]]:
    return read_rows("parquet", file)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["embed", *map(str, arguments)], prog_name="vecmill")


def test_ids_are_the_digests_of_texts_without_a_column_of_ids(url: str, file: str) -> None:
    embed_to_store([{"text": "a"}, {"text": "b"}], file, source="s", server=url)
    assert set(read(file)) == {id_of_input("a"), id_of_input("b")}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([*ROWS, {"id": "3", "text": "x"}], "row 7 has the same id '3' as row 4"),
        ([{"text": "a"}, {"text": "b"}, {"text": "a"}], "row 3 has the same text as row 1"),
        ([*ROWS, {"id": None, "text": "x"}], "row 7 has no string and no integer"),
        ([*ROWS, {"id": True, "text": "x"}], "row 7 has no string and no integer"),
    ],
)
def test_a_row_without_an_id_of_its_own_is_named(
    rows: list[dict[str, Any]], problem: str, url: str, file: str
) -> None:
    with pytest.raises(InvalidCorpus, match=problem):
        embed_to_store(rows, file, source="s", server=url)
    assert not Path(file).exists()
    summary = embed_to_store(rows, file, source="s", server=url, skip_invalid=True)
    assert (summary.embedded, summary.skipped) == (len(rows) - 1, 1)


def test_each_chunk_has_a_row_and_those_that_vanish_are_deleted(file: str) -> None:
    rows = [{"id": "a", "text": LONG}, {"id": "b", "text": "cat"}]
    options: dict[str, Any] = {
        "source": "s",
        "config": MillConfig(engine="fake"),
        "chunking": Chunking("chunks", 8),
    }
    embed_to_store(rows, file, **options)
    many = [key for key in read(file) if key.startswith("a#")]
    assert len(many) > 2
    found = read(file)["a#1"]
    assert (found["document_id"], found["chunk_index"]) == ("a", 1)
    assert embed_to_store(rows, file, **options).unchanged == 2
    rows[0]["text"] = "cat dog"
    summary = embed_to_store(rows, file, **options)
    assert (summary.embedded, summary.unchanged, summary.deleted) == (1, 1, len(many) - 1)
    assert sorted(read(file)) == ["a#0", "b#0"]
    with pytest.raises(InvalidConfig, match="a row for chunks of texts"):
        embed_to_store(rows, file, source="s", config=MillConfig(engine="fake"))


def test_chunks_that_were_not_all_written_are_written_again(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": "a", "text": LONG}]
    options: dict[str, Any] = {
        "source": "s",
        "config": MillConfig(engine="fake"),
        "chunking": Chunking("chunks", 8),
    }
    embed_to_store(rows, file, **options)
    whole = read(file)
    store = parquet_store.ParquetStore(file, "v.parquet", file)
    store.connect()
    store.find()
    store.delete(["a#2"])
    store.close(is_complete=True)
    assert embed_to_store(rows, file, **options).embedded == 1
    assert read(file) == whole


def test_changes_that_are_applied_twice_change_nothing(
    url: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between the swap of the file and the removal of its changes."""
    embed_to_store(ROWS, file, source="s", server=url)
    rows = [{**ROWS[0], "text": "new"}, *ROWS[2:]]
    with monkeypatch.context() as patched:
        patched.setattr("vecmill.stores.parquet_store.shutil.rmtree", lambda *_, **__: None)
        embed_to_store(rows, file, source="s", server=url, delete_vanished=True)
    after = read(file)
    summary = embed_to_store(rows, file, source="s", server=url, delete_vanished=True)
    assert (summary.embedded, summary.unchanged, summary.deleted) == (0, 5, 0)
    assert read(file) == after
    assert not Path(f"{file}.changes").exists()


@pytest.fixture
def foreign(fast_folder: Path) -> Path:
    """A collection of Qdrant that another program wrote."""
    client = QdrantClient(path=str(fast_folder))
    vectors = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    client.create_collection("docs", vectors)
    client.upsert(
        "docs", [models.PointStruct(id=7, vector=[1.0] + [0.0] * (DIM - 1), payload={"by": "hand"})]
    )
    client.close()
    return fast_folder


def test_a_collection_of_another_program_is_refused_unless_told(foreign: Path, url: str) -> None:
    to = f"qdrant:{foreign}/docs"
    with pytest.raises(InvalidConfig, match="vectors that vecmill did not write"):
        embed_to_store(ROWS, to, source="s", server=url)
    embed_to_store(ROWS, to, source="s", server=url, adopt=True)
    with pytest.raises(InvalidCorpus, match=r"has the id '7', which .* has from another program"):
        embed_to_store([{"id": 7, "text": "x"}], to, source="s", server=url, adopt=True)
    # Its row stays, whatever is deleted.
    embed_to_store(ROWS[:1], to, source="s", server=url, delete_vanished=True)
    client = QdrantClient(path=str(foreign))
    points, _ = client.scroll("docs", with_payload=True)
    client.close()
    assert [point.payload for point in points if point.id == 7] == [{"by": "hand"}]
    assert len(points) == 2


def test_a_store_that_fails_half_way_keeps_what_it_has(
    url: str, fast_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = f"qdrant:{fast_folder}/docs"
    monkeypatch.setattr("vecmill.stores.store_writer.PART_ROWS", 2)
    upsert, calls = qdrant.QdrantStore.upsert, []

    def fails_once(self: Any, rows: Any) -> None:
        calls.append(rows)
        if len(calls) == 3:
            raise ConnectionError("gone")
        upsert(self, rows)

    with monkeypatch.context() as patched:
        patched.setattr(qdrant.QdrantStore, "upsert", fails_once)
        with pytest.raises(ServerFailed, match=r"Qdrant failed: gone\. What it has acknowledged is kept"):
            embed_to_store(ROWS, to, source="s", server=url)
    summary = embed_to_store(ROWS, to, source="s", server=url)
    assert (summary.embedded, summary.unchanged) == (2, 4)


def test_two_runs_at_once_into_one_file_are_refused(url: str, file: str) -> None:
    with (
        lock_collection(Path(f"{file}.changes/lock"), "x"),
        pytest.raises(InvalidConfig, match="Another process is writing"),
    ):
        embed_to_store(ROWS, file, source="s", server=url)


# A client of Qdrant that finds the folder locked leaves the file of the lock open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_folder_of_qdrant_that_is_open_is_refused(url: str, fast_folder: Path) -> None:
    client = QdrantClient(path=str(fast_folder))
    with pytest.raises(InvalidConfig, match="Another process is writing qdrant:"):
        embed_to_store(ROWS, f"qdrant:{fast_folder}/docs", source="s", server=url)
    client.close()
    gc.collect()


def test_deletion_needs_the_name_of_the_source(url: str, file: str, tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", ROWS)
    with pytest.raises(InvalidConfig, match="Name the source"):
        embed_to_store(corpus, file, server=url, delete_vanished=True)
    with pytest.raises(InvalidConfig, match="Name the source"):
        embed_to_store(ROWS, file, server=url)
    embed_to_store(corpus, file, server=url)
    assert {row["vecmill_source"] for row in read(file).values()} == {"c.jsonl"}


def test_an_input_that_changes_meanwhile_deletes_nothing(
    url: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", ROWS)
    embed_to_store(corpus, file, source="s", server=url)
    write_lines(corpus, ROWS[:3])
    find = parquet_store.ParquetStore.find

    def changed_then(self: Any) -> Any:
        write_lines(corpus, ROWS[:1])
        return find(self)

    monkeypatch.setattr(parquet_store.ParquetStore, "find", changed_then)
    with pytest.raises(InvalidCorpus, match="has changed since the start, so nothing is deleted"):
        embed_to_store(corpus, file, source="s", server=url, delete_vanished=True)
    assert len(read(file)) == 6


def test_a_file_of_another_kind_is_no_store(url: str, file: str, tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", ROWS)
    assert run(corpus, "-o", file, "--server", url).exit_code == 0
    with pytest.raises(InvalidConfig, match="no ids and digests"):
        embed_to_store(corpus, file, server=url)


@pytest.mark.parametrize("column", ["embedding", "vecmill_source", "chunk_index"])
def test_a_column_of_vecmill_is_not_copied(column: str, url: str, file: str) -> None:
    rows = [{**row, column: 1} for row in ROWS]
    with pytest.raises(InvalidConfig, match=f"The column '{column}' is one of vecmill's own"):
        embed_to_store(rows, file, source="s", server=url, copy_columns=[column])


def test_types_that_a_store_lacks_are_refused(fast_folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="Qdrant has no vectors of the type int8: float only"):
        embed_to_store(
            ROWS, f"qdrant:{fast_folder}/d", source="s", dtype="int8", config=MillConfig(engine="fake"),
            distance="cosine",
        )  # fmt: skip


def test_the_command_says_what_it_did(url: str, file: str, tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", ROWS)
    done = run(corpus, "--to", file, "--server", url)
    assert done.exit_code == 0, done.output
    assert f"{file}: 6 texts embedded. 6 texts were embedded in" in done.output
    write_lines(corpus, [{"id": 0, "text": "new"}, *ROWS[1:4]])
    done = run(corpus, "--to", file, "--server", url)
    assert "1 texts embedded, 3 unchanged, 2 rows that are no longer in the input stay" in done.output
    done = run(corpus, "--to", file, "--server", url, "--delete-vanished", "--source", "c.jsonl")
    assert "0 texts embedded, 4 unchanged, 2 rows deleted." in done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "Name an output file with -o, or a collection of a store with --to."),
        (("-o", "a.npy", "--to", "b.parquet"), "Name an output file with -o, or a collection"),
        (("--to", "b.parquet", "--update"), "--update is for files"),
        (("-o", "a.npy", "--source", "s"), "--source has no effect without --to."),
        (("-o", "a.npy", "--adopt"), "--adopt has no effect without --to."),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    corpus = write_lines(tmp_path / "c.jsonl", ROWS)
    done = run(corpus, *arguments)
    assert done.exit_code == 2
    assert told in done.output


def test_vectors_of_a_space_are_named_in_the_metadata_of_the_file(url: str, file: str) -> None:
    from pyarrow import parquet

    embed_to_store(ROWS, file, source="s", server=url)
    about = json.loads(parquet.read_schema(file).metadata[b"vecmill"])
    assert (about["space"], about["distance"], about["dim"]) == ("s1-" + "0" * 32, "cosine", DIM)
