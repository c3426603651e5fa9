"""Results on disk outlive their process, are never served damaged, and make no fault of the disk an error."""

import asyncio
import os
import random
import sqlite3
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.cached_embeddings import (
    SIZE,
    count_kept,
    file_in,
    is_equal,
    key_of,
    result_of,
    results_of,
    store,
    wait_for,
    wait_until_idle,
)
from vecmill_server.service.embedding_cache import disk_tier
from vecmill_server.service.embedding_cache.disk_tier import DiskTier, Drop
from vecmill_server.service.embedding_cache.embedding_database import (
    LEAST_BYTES,
    PAGE_BYTES,
    EmbeddingDatabase,
)
from vecmill_server.service.embedding_cache.embedding_folder import VERSION, EmbeddingFolder
from vecmill_server.service.embedding_cache.embedding_records import decode_record, encode_record

ALL = range(300)
SEED = 20_261_125


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is slow because other tests run is not taken for one that hangs."""
    monkeypatch.setattr(disk_tier, "READ_S", 20.0)


async def test_results_outlive_their_process(tmp_path: Path) -> None:
    assert await store(tmp_path / "new" / "folder", ALL) == []
    assert await count_kept(tmp_path / "new" / "folder", ALL) == (len(ALL), [])
    assert await count_kept(tmp_path / "new" / "folder", range(300, 310)) == (0, [])


async def test_only_the_owner_may_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    await store(folder, ALL)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_record_is_whole_or_none() -> None:
    dice = random.Random(SEED)
    for number in range(20):
        record = encode_record(key_of(number), result_of(number))
        whole = decode_record(key_of(number), record)
        assert whole is not None
        assert is_equal(whole, result_of(number))
        assert decode_record(key_of(number + 1), record) is None
        for _ in range(50):
            damaged = bytearray(record)
            damaged[dice.randrange(len(record))] ^= 1 << dice.randrange(8)
            assert decode_record(key_of(number), bytes(damaged)) is None
            assert decode_record(key_of(number), record[: dice.randrange(len(record))]) is None


def damage(path: Path, dice: random.Random) -> str:
    """Damage a file in one of the ways in which files are damaged, and say which."""
    data = bytearray(path.read_bytes())
    way = dice.choice(("bytes", "page", "cut", "zeros", "empty", "other", "longer", "head"))
    start = dice.randrange(len(data))
    match way:
        case "bytes":
            for _ in range(dice.choice((1, 10, 1_000))):
                data[dice.randrange(len(data))] = dice.randrange(256)
        case "page":
            begin, source = (dice.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES for _ in range(2))
            data[begin : begin + PAGE_BYTES] = data[source : source + PAGE_BYTES]
        case "cut":
            del data[start:]
        case "zeros":
            data[start : start + 20_000] = bytes(len(data[start : start + 20_000]))
        case "empty":
            data.clear()
        case "other":
            data[:] = b"this is not a database\n" * 1_000
        case "longer":
            data += dice.randbytes(30_000)
        case "head":
            data[dice.randrange(100)] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return way


async def check_damage(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    folder, dice = tmp_path / str(seed), random.Random(seed)
    await store(folder, ALL)
    print(damage(file_in(folder), dice))
    # What is found is right: `count_kept` compares it.
    await count_kept(folder, ALL)
    await store(folder, ALL)
    kept, _ = await count_kept(folder, ALL)
    if kept < len(
        ALL
    ):  # the damage was met by the writer, and everything was dropped; then all is well again
        await store(folder, ALL)
        kept, _ = await count_kept(folder, ALL)
    assert kept == len(ALL)


@pytest.mark.promise("never-an-old-vector")
async def test_a_damaged_file_is_never_served_and_comes_to_be_whole_again(tmp_path: Path) -> None:
    for seed in range(SEED, SEED + 12):
        await check_damage(tmp_path, seed)


@pytest.mark.full
@pytest.mark.promise("never-an-old-vector")
async def test_a_thousand_damaged_files_are_never_served(tmp_path: Path) -> None:
    for seed in range(1_000):
        await check_damage(tmp_path, seed)


@pytest.mark.promise("never-an-old-vector")
async def test_a_file_that_is_damaged_while_it_is_open_is_never_served(tmp_path: Path) -> None:
    for seed in range(4):
        print("seed", seed)
        folder, dice = tmp_path / str(seed), random.Random(seed)
        stored = DiskTier(folder, SIZE, lambda _: None)
        for _ in range(3):
            stored.write(results_of(ALL))
            await wait_until_idle(stored)
            found = await stored.read([key_of(number) for number in ALL])
            for number, result in zip(ALL, found, strict=True):
                assert result is None or is_equal(result, result_of(number))
            print(damage(file_in(folder), dice))
        await stored.close()


async def test_files_of_other_versions_and_other_programs_are_not_read(tmp_path: Path) -> None:
    await store(tmp_path, ALL)
    path = file_in(tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    newer = tmp_path / f"results-{VERSION + 1}-1.sqlite3"
    newer.write_bytes(path.read_bytes())
    older = tmp_path / "results-0-7.sqlite3"
    older.write_bytes(b"of an earlier version")
    foreign = tmp_path / "notes.txt"
    foreign.write_text("not ours")
    assert await count_kept(tmp_path, ALL) == (0, [Drop.FILE_DAMAGED])
    assert newer.exists()
    assert foreign.exists()
    assert not older.exists()
    assert not path.exists()


async def test_the_file_keeps_its_limit_and_the_newest_results(tmp_path: Path) -> None:
    drops: list[Drop] = []
    stored = DiskTier(tmp_path, LEAST_BYTES, drops.append)
    dim = 1_024
    for start in range(0, 6_400, 640):
        stored.write({key_of(number): result_of(number, dim) for number in range(start, start + 640)})
        await wait_until_idle(stored)
        assert file_in(tmp_path).stat().st_size <= LEAST_BYTES
    assert drops == []
    assert all(await stored.read([key_of(number) for number in range(4_000, 6_400)]))
    assert not any(await stored.read([key_of(number) for number in range(640)]))
    assert stored.size <= LEAST_BYTES
    await stored.close()


async def test_a_lower_limit_empties_the_cache(tmp_path: Path) -> None:
    stored = DiskTier(tmp_path, 4 * LEAST_BYTES, lambda _: None)
    stored.write({key_of(number): result_of(number, 4_096) for number in range(1_280)})
    await stored.close()
    assert file_in(tmp_path).stat().st_size > LEAST_BYTES
    await count_kept(tmp_path, ALL, LEAST_BYTES)
    assert file_in(tmp_path).stat().st_size <= LEAST_BYTES


WRITER = """
import asyncio, sys
from collections.abc import Sequence
from pathlib import Path
from support.cached_embeddings import store
drops = asyncio.run(store(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3]))))
sys.exit(f"faults: {drops}" if drops else 0)
"""


async def start_writer(folder: Path, start: int, end: int) -> asyncio.subprocess.Process:
    """Write results in another process, which ends then."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(folder), str(start), str(end), env=environment
    )


async def test_several_processes_write_and_read_one_folder(tmp_path: Path) -> None:
    parts = [(0, 400), (300, 700)]
    writers = [await start_writer(tmp_path, *part) for part in parts]
    # This one reads and writes meanwhile.
    drops: list[Drop] = []
    stored = DiskTier(tmp_path, SIZE, drops.append)
    while any(writer.returncode is None for writer in writers):
        for number, result in enumerate(await stored.read([key_of(number) for number in range(700)])):
            assert result is None or is_equal(result, result_of(number))
        stored.write(results_of(range(700, 720)))
        await wait_until_idle(stored)
    await stored.close()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert await count_kept(tmp_path, range(720)) == (720, [])
    assert drops == []


async def test_a_process_goes_on_with_the_file_that_another_made(tmp_path: Path) -> None:
    one, other = (DiskTier(tmp_path, SIZE, lambda _: None) for _ in range(2))
    for stored in (one, other):
        stored.write(results_of(range(10)))
        await wait_until_idle(stored)
        assert all(await stored.read([key_of(0)]))
    folder = EmbeddingFolder(tmp_path)
    damaged = file_in(tmp_path)
    made = folder.replace(damaged)
    assert folder.replace(damaged) == made  # that the second one finds
    for stored, numbers in ((one, range(10, 20)), (other, range(20, 30))):
        stored.write(results_of(numbers))
        await wait_until_idle(stored)
    assert file_in(tmp_path) == made
    for stored in (one, other):
        assert all(await stored.read([key_of(number) for number in range(10, 30)]))
        await stored.close()


async def test_a_process_that_is_killed_while_it_writes_leaves_a_file_that_others_read(
    tmp_path: Path,
) -> None:
    writer = await start_writer(tmp_path, 0, 4_000)
    await wait_for(lambda: any(path.stat().st_size > 10**5 for path in tmp_path.glob("results-*.sqlite3")))
    writer.kill()
    await writer.wait()
    kept, drops = await count_kept(tmp_path, range(4_000))
    assert kept > 100
    assert drops == []


async def test_a_folder_that_cannot_be_written_costs_nothing_but_the_results(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / "file" / "results"
    drops = await store(folder, ALL)
    assert set(drops) == {Drop.DISK_FAILED}
    kept, _ = await count_kept(folder, ALL)
    assert kept == 0


async def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    stored = DiskTier(folder, SIZE, lambda _: None)
    for _ in range(2):
        stored.write(results_of(ALL))
        await wait_until_idle(stored)
        assert all(await stored.read([key_of(number) for number in ALL]))
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        assert not any(await stored.read([key_of(0)]))
    await stored.close()


class FullDisk(EmbeddingDatabase):
    """A database on a disk that is full until `has_room`."""

    has_room = False

    def put(self, records: object) -> None:
        if not self.has_room:
            self._connection.execute("PRAGMA max_page_count = 1")
            self._pages = 10**6  # so that the limit of the file is not taken for the reason
        super().put(records)  # type: ignore[arg-type]


async def test_a_full_disk_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_tier, "EmbeddingDatabase", FullDisk)
    monkeypatch.setattr(FullDisk, "has_room", False)
    drops: list[Drop] = []
    stored = DiskTier(tmp_path, SIZE, drops.append)
    stored.write({key_of(0): result_of(0, 40_000)})
    await wait_for(lambda: bool(drops))
    assert drops == [Drop.DISK_FULL]
    monkeypatch.setattr(FullDisk, "has_room", True)
    stored.write(results_of(ALL))
    await wait_until_idle(stored)
    assert all(await stored.read([key_of(number) for number in ALL]))
    await stored.close()


class HangingDisk(EmbeddingDatabase):
    """A database on a disk that answers nothing until `released`."""

    released = threading.Event()

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.released.wait()
        return super().get(keys)


async def test_nobody_waits_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await store(tmp_path, ALL)
    monkeypatch.setattr(disk_tier, "EmbeddingDatabase", HangingDisk)
    monkeypatch.setattr(disk_tier, "READ_S", 0.01)
    drops: list[Drop] = []
    stored = DiskTier(tmp_path, SIZE, drops.append)
    for _ in range(disk_tier.MOST_READS + 5):
        assert await stored.read([key_of(1)]) == [None]
    assert drops == [Drop.DISK_FAILED] * 5
    HangingDisk.released.set()
    monkeypatch.setattr(disk_tier, "READ_S", 20.0)
    await wait_for(lambda: stored.open_reads == 0)
    assert all(await stored.read([key_of(1)]))
    await stored.close()


async def test_what_the_disk_cannot_take_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_tier, "MOST_WAITING_BYTES", 10_000)
    drops: list[Drop] = []
    stored = DiskTier(tmp_path, SIZE, drops.append)
    stored.write(results_of(ALL))
    await stored.close()
    assert set(drops) == {Drop.BUSY}
    kept, _ = await count_kept(tmp_path, ALL)
    assert kept == len(ALL) - len(drops) > 0


async def test_what_is_written_makes_room_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = sum(result.values.nbytes for result in results_of(range(100)).values())
    monkeypatch.setattr(disk_tier, "MOST_WAITING_BYTES", part)
    drops: list[Drop] = []
    stored = DiskTier(tmp_path, SIZE, drops.append)
    for start in range(0, 300, 100):
        stored.write(results_of(range(start, start + 100)))
        await wait_until_idle(stored)
    await stored.close()
    assert drops == []


async def test_a_read_whose_request_has_left_harms_nobody(tmp_path: Path) -> None:
    await store(tmp_path, ALL)
    stored = DiskTier(tmp_path, SIZE, lambda _: None)
    left = asyncio.ensure_future(stored.read([key_of(0)]))
    await asyncio.sleep(0)
    left.cancel()
    assert all(await stored.read([key_of(1)]))
    await wait_for(lambda: stored.open_reads == 0)
    await stored.close()
    assert await stored.read([key_of(1)]) == [None]
