"""A store of an earlier version is taken over with all that is in it, or refused with a sentence."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from vecmill.errors import InvalidConfig
from vecmill_server.batches.database import VERSION, Database
from vecmill_server.batches.objects import BatchProgress, BatchStatus, Page, StoreLimits
from vecmill_server.batches.store import Store
from vecmill_server.batches.stored_bytes import BATCH_BYTES, FILE_BYTES
from vecmill_server.service.api_keys import UNNAMED

VERSION_1 = Path(__file__).parent / "store_of_version_1.sql"
LIMITS = StoreLimits(10, 10**6)
NOW = 1_700_000_100


def write_store(folder: Path) -> Path:
    """The store of version 1 in `folder`, with contents of the sizes that the database has."""
    (folder / "files").mkdir()
    with closing(sqlite3.connect(folder / "vecmill.sqlite3")) as database:
        database.executescript(VERSION_1.read_text("utf-8"))
        database.execute("PRAGMA journal_mode = WAL")
        sizes = database.execute("SELECT id, bytes FROM files").fetchall()
        sizes += database.execute("SELECT output_file_id, output_bytes FROM batches").fetchall()
    for file_id, size in sizes:
        if size:
            (folder / "files" / file_id).write_bytes(b"x" * size)
    return folder


@pytest.mark.promise("batches-survive")
def test_nothing_of_a_store_of_version_1_is_lost(tmp_path: Path) -> None:
    write_store(tmp_path)
    contents = {path.name: path.read_bytes() for path in (tmp_path / "files").iterdir()}
    with closing(Store(tmp_path, LIMITS)) as store:
        files, _ = store.files(UNNAMED, Page(100))
        names = [record.filename for record in files]
        assert names[:3] == ["waiting.jsonl", "half.jsonl", "bad.jsonl"]
        assert (len(names), names[-1]) == (6, "done.jsonl")
        batches, _ = store.batches(UNNAMED, Page(100))
        assert [batch.status for batch in batches] == ["validating", "in_progress", "failed", "completed"]
        assert {batch.metadata["who"] for batch in batches if batch.metadata} == {"me"}
        assert batches[2].errors[0].code == "invalid_json_line"
        assert (batches[1].lines_done, batches[1].output_bytes) == (1, 9)
        sizes = 273 * 3 + 3 + 18 + 9 + 9
        counted = sizes + 6 * FILE_BYTES + 2 * BATCH_BYTES
        assert store.stored.of(UNNAMED) == store.stored.total == counted
        for owner in ("search", "none"):
            assert store.files(owner, Page(100)) == ([], False)
        assert {path.name: path.read_bytes() for path in (tmp_path / "files").iterdir()} == contents


@pytest.mark.promise("batches-survive")
def test_its_open_batches_go_on(tmp_path: Path) -> None:
    write_store(tmp_path)
    with closing(Store(tmp_path, LIMITS)) as store:
        (batch_id,) = list(store.batch_owners([BatchStatus.IN_PROGRESS]))
        store.check_contents(batch_id)
        progress = BatchProgress(2, 182, b"more\n", b"", 2, 0, 6)
        store.advance(store.batch(batch_id), progress)
        batch = store.finish(batch_id, NOW, None)
        assert (batch.status, batch.completed) == ("completed", 3)
        assert store.folder.path(batch.output_file_id).read_bytes() == b"x" * 9 + b"more\n"
        store.delete_file(UNNAMED, batch.input_file_id, NOW)
        (waiting,) = list(store.batch_owners([BatchStatus.VALIDATING]))
        assert store.cancel(UNNAMED, waiting, NOW).status is BatchStatus.CANCELLED


def test_it_is_taken_over_once(tmp_path: Path) -> None:
    write_store(tmp_path)
    for _ in range(2):
        with closing(Store(tmp_path, LIMITS)) as store:
            assert len(store.files(UNNAMED, Page(100))[0]) == 6
    with closing(sqlite3.connect(tmp_path / "vecmill.sqlite3")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_it_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    write_store(tmp_path / "old")
    shapes = []
    for name in ("new", "old"):
        with closing(Store(tmp_path / name, LIMITS)):
            pass
        with closing(sqlite3.connect(tmp_path / name / "vecmill.sqlite3")) as database:
            found = database.execute("SELECT type, name FROM sqlite_schema ORDER BY name").fetchall()
            columns = {
                table: sorted(row[1:4] for row in database.execute(f"PRAGMA table_info({table})"))
                for kind, table in found
                if kind == "table"
            }
            shapes.append((found, columns))
    assert shapes[0] == shapes[1]


def test_one_that_cannot_be_taken_over_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    write_store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "vecmill.sqlite3")) as database:
        database.execute("CREATE TABLE deleted_files (of_somebody_else)")
    before = dump(tmp_path)
    with pytest.raises(InvalidConfig, match="--batch-dir"):
        Store(tmp_path, LIMITS)
    assert dump(tmp_path) == before


def test_a_statement_that_fails_leaves_no_transaction_open(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "database")) as database:
        for _ in range(3):
            with pytest.raises(sqlite3.OperationalError), database.transaction():
                database.execute("INSERT INTO nothing VALUES (1)")
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(3):
            with pytest.raises(sqlite3.OperationalError, match="full"), database.transaction():
                fill(database)


def fill(database: Database) -> None:
    for number in range(1000):
        row = {"id": f"{number}" * 100, "place": number, "owner": "o" * 100, "deleted_at": 0}
        database.insert("deleted_files", row)


def dump(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "vecmill.sqlite3")) as database:
        return [*database.iterdump(), str(database.execute("PRAGMA user_version").fetchone())]
