"""No owner stores more than its share, and what is counted is what is on disk."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from batches.stores import NOW, keep_file
from vecmill_server.base.errors import Conflict, StorageFull
from vecmill_server.batches.folder import new_file_id
from vecmill_server.batches.objects import (
    OPEN_STATUSES,
    STARTED_STATUSES,
    BatchProgress,
    LineError,
    NewBatch,
    Page,
    StoreLimits,
)
from vecmill_server.batches.store import Store
from vecmill_server.batches.stored_bytes import BATCH_BYTES, FILE_BYTES, Reservation, StoredBytes

OWNERS = ("", "search", "ingest")


def room(stored: StoredBytes, owner: str) -> int:
    with pytest.raises(StorageFull) as raised:
        stored.check(owner, 10**12)
    return raised.value.room


@pytest.mark.promise("owners-apart")
def test_owners_share_the_space_equally() -> None:
    stored = StoredBytes(1000, lambda: 2, {})
    stored.take("a", 500)
    with pytest.raises(StorageFull, match="share of a key in --max-stored-bytes") as raised:
        stored.take("a", 1)
    assert raised.value.room == 0
    stored.take("b", 400)
    assert (stored.total, stored.of("a"), room(stored, "b")) == (900, 500, 100)
    stored.give_back("a", 100)
    stored.take("a", 1)


def test_the_whole_is_limited_too() -> None:
    owners = [1]
    stored = StoredBytes(1000, lambda: owners[0], {"": 900})  # of a key that is no longer in the file
    with pytest.raises(StorageFull, match="larger --max-stored-bytes") as raised:
        stored.take("a", 200)
    assert raised.value.room == 100
    owners[0] = 20
    assert room(stored, "a") == 50
    owners[0] = 0  # no key is left
    stored.take("a", 100)


@pytest.mark.promise("bounded-input", "full-disk")
def test_uploads_at_once_cannot_pass_the_limit_together() -> None:
    stored = StoredBytes(1000, lambda: 1, {})
    first, second = Reservation(stored, "a"), Reservation(stored, "a")
    for _ in range(5):
        first.grow(100)
        second.grow(100)
    for upload in (first, second):
        with pytest.raises(StorageFull):
            upload.grow(1)
    first.keep()
    first.release()
    second.release()
    second.release()
    assert stored.total == 500


def test_the_count_is_the_one_of_the_next_start(tmp_path: Path) -> None:
    chance, limits = random.Random(7), StoreLimits(1000, 10**6, lambda: len(OWNERS))
    store = Store(tmp_path, limits)
    for step in range(150):
        owner = chance.choice(OWNERS)
        match chance.randrange(5):
            case 0:
                upload(store, owner, chance.randrange(50_000))
            case 1:
                begin(store, owner, chance)
            case 2:
                advance(store, chance)
            case 3:
                cancel(store, chance)
            case 4:
                delete(store, owner, chance, step)
    assert store.stored.total > 0
    counted = {owner: store.stored.of(owner) for owner in OWNERS}
    assert 200_000 < max(counted.values()) <= 10**6 // 3
    store.close()
    store = Store(tmp_path, limits)
    assert {owner: store.stored.of(owner) for owner in OWNERS} == counted
    on_disk = sum(path.stat().st_size for path in (tmp_path / "files").iterdir())
    files = sum(len(store.files(owner, Page(1000))[0]) for owner in OWNERS)
    batches = len(list(store.batch_owners(OPEN_STATUSES)))
    of_files = files * FILE_BYTES + batches * BATCH_BYTES
    assert on_disk + of_files == store.stored.total == sum(counted.values())
    store.close()


def test_what_an_upload_had_reserved_is_free_after_a_crash(tmp_path: Path) -> None:
    store = Store(tmp_path, StoreLimits(10, FILE_BYTES + 1_000))
    assert upload(store, "", 400) is not None
    Reservation(store.stored, "").grow(600)
    half = store.folder.create(new_file_id())
    half.write(b"x" * 600)
    half.flush()
    assert (store.stored.total, upload(store, "", 1)) == (FILE_BYTES + 1_000, None)
    half.close()
    store.close()  # as the end of the process would, without a word to the upload
    store = Store(tmp_path, StoreLimits(10, FILE_BYTES + 1_000))
    assert (store.stored.total, len(list((tmp_path / "files").iterdir()))) == (FILE_BYTES + 400, 1)
    store.close()


def upload(store: Store, owner: str, size: int) -> str | None:
    reservation = Reservation(store.stored, owner)
    try:
        reservation.grow(FILE_BYTES + size)
    except StorageFull:
        return None
    record = keep_file(store, b"x" * size, owner=owner)
    reservation.keep()
    return record.id


def begin(store: Store, owner: str, chance: random.Random) -> None:
    file_id = upload(store, owner, 1000)
    if file_id is not None:
        new = NewBatch(file_id, "/v1/embeddings", "24h", 86_400)
        with suppress(StorageFull):
            batch = store.add_batch(owner, new, (new_file_id(), new_file_id()), NOW)
            if chance.random() < 0.7:
                store.begin(batch.id, 3, NOW)


def cancel(store: Store, chance: random.Random) -> None:
    ids = list(store.batch_owners(OPEN_STATUSES))
    if ids:
        batch = store.batch(chance.choice(ids))
        with suppress(Conflict):
            store.cancel(batch.owner, batch.id, NOW)


def results(chance: random.Random, kind: bytes) -> bytes:
    """Results of a line, often none."""
    return kind * max(0, chance.randrange(-20_000, 20_000))


def advance(store: Store, chance: random.Random) -> None:
    ids = list(store.batch_owners(STARTED_STATUSES))
    if not ids:
        return
    batch = store.batch(chance.choice(ids))
    progress = BatchProgress(1, 10, results(chance, b"o"), results(chance, b"e"), 1, 1, 1)
    try:
        store.advance(batch, progress)
    except StorageFull:
        store.stop(batch.id, LineError("storage_limit_exceeded", "full"))
    match chance.randrange(3):
        case 0:
            store.finish(batch.id, NOW, None)
        case 1 if chance.random() < 0.3:
            store.fail(batch.id, [LineError("file_gone", "gone")], NOW)


def delete(store: Store, owner: str, chance: random.Random, now: int) -> None:
    files, _ = store.files(owner, Page(1000))
    if files:
        with suppress(Conflict):
            store.delete_file(owner, chance.choice(files).id, now)


@pytest.mark.promise("owners-apart", "bounded-input")
def test_empty_files_are_limited_and_leave_room_to_others(tmp_path: Path) -> None:
    store = Store(tmp_path, StoreLimits(10, 20 * FILE_BYTES, lambda: 2))
    made = []
    while (file_id := upload(store, "search", 0)) is not None:
        made.append(file_id)
    assert len(made) == 10
    with pytest.raises(StorageFull, match=f"Each file counts {FILE_BYTES} bytes more than its content"):
        store.stored.check("search", FILE_BYTES)
    assert upload(store, "ingest", 0) is not None
    store.delete_file("search", made[0], NOW)
    assert upload(store, "search", 0) is not None
    store.close()
    store = Store(tmp_path, StoreLimits(10, 20 * FILE_BYTES, lambda: 2))
    assert (store.stored.of("search"), store.stored.of("ingest")) == (10 * FILE_BYTES, FILE_BYTES)
    assert upload(store, "search", 0) is None
    store.close()


def test_a_batch_is_not_created_without_room_for_its_output_files(tmp_path: Path) -> None:
    store = Store(tmp_path, StoreLimits(10, FILE_BYTES + BATCH_BYTES + 99))
    file_id = upload(store, "", 98)
    assert file_id is not None
    new = NewBatch(file_id, "/v1/embeddings", "24h", 86_400)
    batch = store.add_batch("", new, (new_file_id(), new_file_id()), NOW)
    with pytest.raises(StorageFull):
        store.add_batch("", new, (new_file_id(), new_file_id()), NOW)
    assert store.stored.total == FILE_BYTES + BATCH_BYTES + 98
    store.begin(batch.id, 1, NOW)
    store.advance(store.batch(batch.id), BatchProgress(1, 98, b"\n", b"", 1, 0, 1))
    store.finish(batch.id, NOW, None)
    assert store.stored.total == 2 * FILE_BYTES + 99  # the error file is empty, so there is none
    store.close()


def test_a_store_that_is_over_the_limit_keeps_its_files(tmp_path: Path) -> None:
    store = Store(tmp_path, StoreLimits(10, 10**6))
    made = [upload(store, "", 10) for _ in range(3)]
    store.close()
    store = Store(tmp_path, StoreLimits(10, 1_000))  # as if each file had counted its content only
    assert [record.id for record in store.files("", Page(10, newest_first=False))[0]] == made
    assert (store.stored.total, upload(store, "", 0)) == (3 * (FILE_BYTES + 10), None)
    for file_id in made:
        assert file_id is not None
        store.delete_file("", file_id, NOW)
    assert store.stored.total == 0
    store.close()
