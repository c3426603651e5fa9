"""An owner sees its own files and batches only, and pages stay whole while files are deleted."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from batches.stores import NOW, keep_file
from vecmill.errors import QueueFull
from vecmill_server.base.errors import UnknownObject
from vecmill_server.batches.folder import new_file_id
from vecmill_server.batches.objects import (
    BatchObject,
    BatchProgress,
    BatchStatus,
    NewBatch,
    Page,
    StoreLimits,
)
from vecmill_server.batches.store import DELETED_KEEP_S, Store

LIMITS = StoreLimits(6, 10**9, lambda: 2)
EVERYTHING = Page(1000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path, LIMITS)) as store:
        yield store


def upload(store: Store, owner: str) -> str:
    return keep_file(store, owner=owner).id


def create(store: Store, owner: str) -> BatchObject:
    new = NewBatch(upload(store, owner), "/v1/embeddings", "24h", 86_400)
    return store.add_batch(owner, new, (new_file_id(), new_file_id()), NOW)


@pytest.mark.promise("owners-apart")
@pytest.mark.parametrize("other", ["", "ingest", "Search", "search "])
def test_the_objects_of_others_do_not_exist(store: Store, other: str) -> None:
    file_id, batch = upload(store, "search"), create(store, "search")
    with pytest.raises(UnknownObject):
        store.file(other, file_id)
    with pytest.raises(UnknownObject):
        store.delete_file(other, file_id, NOW)
    with pytest.raises(UnknownObject):
        store.batch(batch.id, other)
    with pytest.raises(UnknownObject):
        store.cancel(other, batch.id, NOW)
    new = NewBatch(file_id, "/v1/embeddings", "24h", 86_400)
    with pytest.raises(UnknownObject):
        store.add_batch(other, new, (new_file_id(), new_file_id()), NOW)
    assert store.files(other, EVERYTHING) == ([], False)
    assert store.batches(other, EVERYTHING) == ([], False)
    for after in (file_id, batch.id):
        with pytest.raises(UnknownObject):
            store.files(other, Page(10, after))
        with pytest.raises(UnknownObject):
            store.batches(other, Page(10, after))
    assert store.file("search", file_id).owner == "search"
    assert store.batch(batch.id, "search").status is BatchStatus.VALIDATING


@pytest.mark.promise("owners-apart")
def test_the_output_of_a_batch_belongs_to_its_owner(store: Store) -> None:
    batch = store.begin(create(store, "search").id, 1, NOW)
    store.advance(batch, BatchProgress(1, 10, b"{}\n", b"{}\n", 1, 0, 1))
    batch = store.finish(batch.id, NOW, None)
    for file_id in (batch.output_file_id, batch.error_file_id):
        assert store.file("search", file_id).owner == "search"
        with pytest.raises(UnknownObject):
            store.file("ingest", file_id)


def test_pages_of_one_owner_are_whole_among_files_of_others(store: Store) -> None:
    made = [upload(store, ("search", "ingest")[number % 2]) for number in range(20)]
    assert pages(store, "search", 3) == made[0::2][::-1]
    assert pages(store, "ingest", 3) == made[1::2][::-1]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_file_is_seen_once_while_each_page_is_deleted(store: Store, size: int) -> None:
    made = [upload(store, "search") for _ in range(9)]
    seen, after = list[str](), None
    while True:
        files, has_more = store.files("search", Page(size, after))
        seen += [record.id for record in files]
        for record in files:
            store.delete_file("search", record.id, NOW)
        if not has_more:
            break
        after = files[-1].id
    assert seen == made[::-1]
    assert store.files("search", EVERYTHING) == ([], False)


def test_the_place_of_a_deleted_file_is_kept_for_a_day_and_for_its_owner(store: Store) -> None:
    old, middle, young = (upload(store, "search") for _ in range(3))
    store.delete_file("search", middle, NOW)
    assert [record.id for record in store.files("search", Page(5, middle))[0]] == [old]
    assert [record.id for record in store.files("search", Page(5, middle, newest_first=False))[0]] == [young]
    with pytest.raises(UnknownObject):
        store.files("ingest", Page(5, middle))
    with pytest.raises(UnknownObject):
        store.file("search", middle)
    store.delete_expired(NOW + DELETED_KEEP_S - 1)
    assert store.files("search", Page(5, middle))[0]
    store.delete_expired(NOW + DELETED_KEEP_S)
    with pytest.raises(UnknownObject):
        store.files("search", Page(5, middle))


def test_the_places_of_deleted_files_are_limited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecmill_server.batches.store.KEPT_PLACES", 3)
    kept, *deleted = (upload(store, "search") for _ in range(6))
    store.delete_file("ingest", upload(store, "ingest"), NOW)
    for later, file_id in enumerate(reversed(deleted)):
        store.delete_file("search", file_id, NOW + later)
    store.delete_expired(NOW + 10)
    for file_id in deleted[:3]:  # those that were deleted last
        assert [record.id for record in store.files("search", Page(5, file_id))[0]] == [kept]
    for file_id in deleted[3:]:
        with pytest.raises(UnknownObject):
            store.files("search", Page(5, file_id))


def test_one_owner_cannot_use_up_the_open_batches(store: Store) -> None:
    for _ in range(3):
        create(store, "search")
    with pytest.raises(QueueFull, match="3 of your batches"):
        create(store, "search")
    assert create(store, "ingest").is_open


def test_the_batches_of_owners_take_turns(store: Store) -> None:
    first = [create(store, "search").id for _ in range(3)]
    second = [create(store, "ingest").id for _ in range(2)]
    order = list(store.batch_owners([BatchStatus.VALIDATING]))
    assert order == [first[0], second[0], first[1], second[1], first[2]]


def pages(store: Store, owner: str, size: int) -> list[str]:
    seen, after, has_more = list[str](), None, True
    while has_more:
        files, has_more = store.files(owner, Page(size, after))
        seen += [record.id for record in files]
        after = files[-1].id
    return seen


def test_the_oldest_ended_batches_of_an_owner_are_forgotten_and_open_ones_are_not(store: Store) -> None:
    open_batch = create(store, "search").id
    ended = [create(store, "search").id for _ in range(2)]
    other = create(store, "ingest").id
    for batch_id in (*ended, other):
        store.cancel("ingest" if batch_id == other else "search", batch_id, NOW)
    store.forget_batches(2)
    assert [batch.id for batch in store.batches("search", EVERYTHING)[0]] == [*ended[::-1], open_batch]
    store.forget_batches(1)
    assert [batch.id for batch in store.batches("search", EVERYTHING)[0]] == [ended[1], open_batch]
    assert [batch.id for batch in store.batches("ingest", EVERYTHING)[0]] == [other]
    assert len(store.files("search", EVERYTHING)[0]) == 3
