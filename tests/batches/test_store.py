"""What the store was told stays true, and a line is kept once, wherever the process ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batches.stores import NOW, keep_file
from vecmill.errors import InvalidConfig, QueueFull
from vecmill_server.base.errors import Conflict, UnknownObject
from vecmill_server.batches.folder import new_file_id
from vecmill_server.batches.objects import (
    BatchObject,
    BatchProgress,
    BatchStatus,
    LineError,
    NewBatch,
    Page,
    StoreLimits,
)
from vecmill_server.batches.store import Store
from vecmill_server.batches.stored_bytes import BATCH_BYTES, FILE_BYTES

DAY_S = 24 * 3600
MANY_BYTES = 10**9
OWNER = ""
CONTENT = b"0123456789" * 3
FIRST = BatchProgress(2, 20, b'{"a": 1}\n', b'{"b": 2}\n', 1, 1, 7)
SECOND = BatchProgress(1, 10, b'{"c": 3}\n', b"", 1, 0, 3)


@contextmanager
def opened(root: Path, *, max_open: int = 10) -> Iterator[Store]:
    store = Store(root, StoreLimits(max_open, MANY_BYTES))
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as store:
        yield store


def add_batch(store: Store, *, age_s: int | None = None) -> BatchObject:
    request = NewBatch(
        keep_file(store, CONTENT).id,
        "/v1/embeddings",
        "24h",
        DAY_S,
        {"who": "me"},
        output_expires_after_s=age_s,
    )
    return store.add_batch(OWNER, request, (new_file_id(), new_file_id()), NOW)


def begun(store: Store, *, age_s: int | None = None) -> BatchObject:
    return store.begin(add_batch(store, age_s=age_s).id, 3, NOW + 1)


def content(store: Store, file_id: str) -> bytes:
    return store.folder.path(file_id).read_bytes()


def test_a_batch_goes_from_its_file_to_its_answers(store: Store) -> None:
    batch = add_batch(store)
    assert (batch.status, batch.expires_at, batch.metadata) == ("validating", NOW + DAY_S, {"who": "me"})
    batch = store.begin(batch.id, 3, NOW + 1)
    batch = store.advance(batch, FIRST)
    assert "output_file_id" not in batch.to_json()
    batch = store.finish(store.advance(batch, SECOND).id, NOW + 2, keep_s=None)
    assert (batch.status, batch.in_progress_at, batch.completed_at) == ("completed", NOW + 1, NOW + 2)
    assert batch.to_json()["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert batch.to_json()["output_file_id"] == batch.output_file_id
    assert content(store, batch.output_file_id) == b'{"a": 1}\n{"c": 3}\n'
    assert content(store, batch.error_file_id) == b'{"b": 2}\n'
    output = store.file(OWNER, batch.output_file_id)
    assert (output.purpose, output.bytes, output.filename) == (
        "batch_output",
        18,
        f"{batch.id}_output.jsonl",
    )


@pytest.mark.promise("batches-survive")
def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        batch = store.advance(begun(store), FIRST)
        files = store.files(OWNER, Page(10))
    with opened(tmp_path) as store:
        assert store.batch(batch.id) == batch
        assert store.files(OWNER, Page(10)) == files
        assert list(store.batch_owners([BatchStatus.IN_PROGRESS])) == [batch.id]


@pytest.mark.promise("batches-survive")
def test_lines_that_were_written_but_not_committed_are_written_again_in_their_place(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        batch = store.advance(begun(store), FIRST)
        # The process ends between the write and the transaction, with more written than comes next.
        store.folder.write_at(batch.output_file_id, batch.output_bytes, b"torn" * 100)
        store.folder.write_at(batch.error_file_id, batch.error_bytes, b"torn" * 100)
    with opened(tmp_path) as store:
        batch = store.advance(store.batch(batch.id), SECOND)
        batch = store.finish(batch.id, NOW + 2, keep_s=None)
        assert content(store, batch.output_file_id) == b'{"a": 1}\n{"c": 3}\n'
        assert content(store, batch.error_file_id) == b'{"b": 2}\n'


def test_the_same_lines_cannot_be_kept_twice(store: Store) -> None:
    batch = begun(store)
    store.advance(batch, FIRST)
    with pytest.raises(RuntimeError, match="is not where it was"):
        store.advance(batch, FIRST)
    assert store.batch(batch.id).completed == 1


def test_a_batch_that_was_finalizing_ends_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        batch = store.advance(store.advance(begun(store), FIRST), SECOND)
        cut, seen = store.folder.cut, list[str]()

        def cut_one(file_id: str, size: int) -> None:
            if seen:
                raise KeyboardInterrupt
            seen.append(file_id)
            cut(file_id, size)

        monkeypatch.setattr(store.folder, "cut", cut_one)
        with pytest.raises(KeyboardInterrupt):
            store.finish(batch.id, NOW + 2, keep_s=None)
    with opened(tmp_path) as store:
        assert store.batch(batch.id).status is BatchStatus.FINALIZING
        assert "output_file_id" not in store.batch(batch.id).to_json()
        batch = store.finish(batch.id, NOW + 3, keep_s=None)
        assert (batch.status, batch.finalizing_at, batch.completed_at) == ("completed", NOW + 2, NOW + 3)
        assert len(store.files(OWNER, Page(10))[0]) == 3


def test_files_without_anything_in_them_are_not_made(store: Store) -> None:
    batch = store.finish(store.advance(begun(store), SECOND).id, NOW, keep_s=None)
    assert "error_file_id" not in batch.to_json()
    with pytest.raises(UnknownObject):
        store.file(OWNER, batch.error_file_id)


def test_what_is_of_no_file_is_swept_at_the_start_and_the_rest_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        batch = store.advance(begun(store), FIRST)
        with store.folder.create(new_file_id()) as half:  # an upload that the process did not survive
            half.write(b"half")
    with opened(tmp_path) as store:
        names = {path.name for path in (tmp_path / "files").iterdir()}
        assert names == {batch.input_file_id, batch.output_file_id, batch.error_file_id}
        results = len(FIRST.output + FIRST.errors)
        assert store.stored.total == 30 + FILE_BYTES + results + BATCH_BYTES


def test_what_somebody_else_keeps_in_the_folder_stays(tmp_path: Path) -> None:
    photos = tmp_path / "files" / "photos"
    photos.mkdir(parents=True)
    (tmp_path / "files" / "file-of-mine").write_text("precious")
    with opened(tmp_path):
        pass
    assert photos.exists()
    assert (tmp_path / "files" / "file-of-mine").read_text() == "precious"


def test_what_clients_send_is_read_by_nobody_else_whoever_owns_the_folder(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o775)  # a mounted one is often root's, and only writable for our group
    with opened(volume) as store:
        keep_file(store)
        kept = list(volume.rglob("*"))
        assert {path.stat().st_mode & 0o077 for path in kept} == {0}
    assert volume.stat().st_mode & 0o777 == 0o775


def test_cancelling_before_the_beginning_ends_it_at_once(store: Store) -> None:
    batch = store.cancel(OWNER, add_batch(store).id, NOW + 5)
    assert (batch.status, batch.cancelled_at) == ("cancelled", NOW + 5)
    assert store.begin(batch.id, 3, NOW + 6).status is BatchStatus.CANCELLED


def test_cancelling_keeps_what_is_done_and_is_the_same_twice(store: Store) -> None:
    batch = store.advance(begun(store), FIRST)
    batch = store.cancel(OWNER, batch.id, NOW + 5)
    assert (batch.status, batch.cancelling_at, batch.cancelled_at) == ("cancelling", NOW + 5, None)
    assert store.cancel(OWNER, batch.id, NOW + 6) == batch
    assert store.expire(batch.id).ending is BatchStatus.CANCELLED
    batch = store.finish(batch.id, NOW + 7, keep_s=None)
    assert (batch.status, batch.cancelled_at) == ("cancelled", NOW + 7)
    assert content(store, batch.output_file_id) == FIRST.output
    assert store.cancel(OWNER, batch.id, NOW + 8) == batch


def test_those_of_which_no_more_is_run_are_found(store: Store) -> None:
    add_batch(store)
    late, cancelled, finished = begun(store), begun(store), begun(store)
    store.cancel(OWNER, cancelled.id, NOW)
    store.finish(finished.id, NOW, keep_s=None)
    assert list(store.ending_batches(NOW)) == [cancelled.id]
    assert list(store.ending_batches(late.expires_at)) == [late.id, cancelled.id]


def test_what_has_ended_cannot_be_cancelled(store: Store) -> None:
    batch = store.finish(begun(store).id, NOW, keep_s=None)
    with pytest.raises(Conflict, match="completed"):
        store.cancel(OWNER, batch.id, NOW)
    with pytest.raises(UnknownObject):
        store.cancel(OWNER, "batch_none", NOW)


def test_a_batch_that_fails_tells_why_and_leaves_nothing(store: Store) -> None:
    problem = LineError("invalid_json_line", "This line is not JSON.", None, 3)
    batch = store.advance(begun(store), FIRST)
    batch = store.fail(batch.id, [problem], NOW + 1)
    assert batch.to_json()["errors"] == {
        "object": "list",
        "data": [
            {"code": "invalid_json_line", "message": "This line is not JSON.", "param": None, "line": 3}
        ],
    }
    assert (batch.status, batch.failed_at) == ("failed", NOW + 1)
    files = batch.to_json().get("output_file_id"), batch.to_json().get("error_file_id")
    assert files == (None, None)
    assert not store.folder.path(batch.output_file_id).exists()


def test_a_file_that_an_open_batch_reads_cannot_be_deleted(store: Store) -> None:
    batch = begun(store)
    with pytest.raises(Conflict, match=batch.id):
        store.delete_file(OWNER, batch.input_file_id, NOW)
    store.finish(batch.id, NOW, keep_s=None)
    store.delete_file(OWNER, batch.input_file_id, NOW)
    assert not store.folder.path(batch.input_file_id).exists()
    with pytest.raises(UnknownObject):
        store.delete_file(OWNER, batch.input_file_id, NOW)


def test_files_go_when_their_time_has_come_but_not_from_under_a_batch(store: Store) -> None:
    old, young = keep_file(store, expires_at=NOW + 10), keep_file(store, expires_at=NOW + 11)
    lasting, read = keep_file(store), keep_file(store, expires_at=NOW + 1)
    request = NewBatch(read.id, "/v1/embeddings", "24h", DAY_S)
    batch = store.add_batch(OWNER, request, (new_file_id(), new_file_id()), NOW)
    assert store.delete_expired(NOW + 10) == 1
    assert not store.folder.path(old.id).exists()
    left = {record.id for record in store.files(OWNER, Page(10))[0]}
    assert left == {young.id, lasting.id, read.id}
    store.cancel(OWNER, batch.id, NOW)
    assert store.delete_expired(NOW + 10) == 1


@pytest.mark.parametrize(("keep_s", "age_s", "expected"), [(None, None, None), (50, None, 50), (50, 20, 20)])
def test_answers_are_kept_as_long_as_setting_and_client_say(
    store: Store, keep_s: int | None, age_s: int | None, expected: int | None
) -> None:
    batch = store.finish(store.advance(begun(store, age_s=age_s), FIRST).id, NOW, keep_s)
    wanted = None if expected is None else NOW + expected
    assert store.file(OWNER, batch.output_file_id).expires_at == wanted


def test_pages_follow_one_another(store: Store) -> None:
    made = [keep_file(store).id for _ in range(5)]
    first, has_more = store.files(OWNER, Page(2))
    assert ([record.id for record in first], has_more) == (made[:-3:-1], True)
    second, has_more = store.files(OWNER, Page(3, after=first[-1].id))
    assert ([record.id for record in second], has_more) == (made[2::-1], False)
    oldest, _ = store.files(OWNER, Page(2, after=made[0], newest_first=False))
    assert [record.id for record in oldest] == made[1:3]
    assert store.files(OWNER, Page(5), "batch_output") == ([], False)
    with pytest.raises(UnknownObject, match="file-none"):
        store.files(OWNER, Page(2, after="file-none"))


def test_so_many_batches_are_open_and_no_more(tmp_path: Path) -> None:
    with opened(tmp_path, max_open=1) as store:
        batch = begun(store)
        with pytest.raises(QueueFull, match="1 batches are open"):
            add_batch(store)
        store.finish(batch.id, NOW, keep_s=None)
        assert add_batch(store).is_open


def test_a_batch_needs_a_file_that_was_uploaded_for_one(store: Store) -> None:
    done = store.finish(store.advance(begun(store), FIRST).id, NOW, keep_s=None)
    for file_id in (done.output_file_id, "file-none", "\udcff"):
        with pytest.raises(UnknownObject, match="for a batch"):
            store.add_batch(OWNER, NewBatch(file_id, "/v1/embeddings", "24h", DAY_S), ("a", "b"), NOW)


@pytest.mark.parametrize("which", ["input", "output"])
def test_a_file_that_somebody_took_away_is_noticed(store: Store, which: str) -> None:
    batch = store.advance(begun(store), FIRST)
    store.check_contents(batch.id)
    store.folder.remove(batch.input_file_id if which == "input" else batch.output_file_id)
    with pytest.raises(FileNotFoundError):
        store.check_contents(batch.id)


def test_one_process_has_a_folder_to_itself(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(InvalidConfig, match="Another process"), opened(tmp_path):
        pass
    with opened(tmp_path):
        pass


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="--batch-dir"), opened(tmp_path / "file"):
        pass
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/vecmill.sqlite3").write_bytes(b"this is no database" * 100)
    with pytest.raises(InvalidConfig, match="--batch-dir"), opened(tmp_path / "broken"):
        pass


def test_the_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store._database.execute("PRAGMA user_version = 99")
    with pytest.raises(InvalidConfig, match="newer vecmill"), opened(tmp_path):
        pass
