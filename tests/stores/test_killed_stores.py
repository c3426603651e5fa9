"""Killed at any moment, while the input changes too, a collection ends as after one clean run."""

import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stores.counted_server import CountedTexts, serve_counted
from stores.store_places import ELSEWHERE, HERE, StorePlace, place_in, store_in, write_lines
from support.forked_process import ForkedProcess

SEED = 20_261_129
KILLS_AT = (0.15, 0.35, 0.55, 0.75, 0.9)  # of the rows, in texts that were embedded so far
BEFORE_THE_CHANGE = 2  # kills
# The rows, and the texts of a part: those of the command, or fewer.
SMALL, PART = 1_000, 64
FAST = ("parquet", "lancedb", "pgvector")
SCALES = [
    ("parquet", SMALL, PART),
    pytest.param("qdrant", 400, 32, marks=pytest.mark.full),  # each process imports its client for a second
    *(pytest.param(kind, 100_000, 1024, marks=pytest.mark.full) for kind in FAST),
    # These two take milliseconds for each row.
    *(pytest.param(kind, 20_000, 1024, marks=pytest.mark.full) for kind in ("qdrant", "chroma")),
]
COMMAND = str(Path(__file__).with_name("embed_in_parts.py"))


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"id": f"n{at}", "text": f"text {at}", "tag": at % 7} for at in range(count)]


def changed(rows: list[dict[str, Any]], dice: random.Random) -> list[dict[str, Any]]:
    """The rows, of which 10% have another text and 5% are removed, in another order."""
    left = dice.sample(rows, len(rows) - len(rows) // 20)
    new = {row["id"] for row in dice.sample(left, len(rows) // 10)}
    return [{**row, "text": row["text"] + " anew"} if row["id"] in new else row for row in left]


def command_of(store: StorePlace, corpus: Path, url: str, part: int) -> list[str]:
    line = [store.python, COMMAND, str(part), "embed", str(corpus), "--server", url, "--to", store.address]
    return [*line, "--copy-column", "tag", "--source", "corpus", "--delete-vanished"]


def run_killed(store: StorePlace, line: list[str], counted: CountedTexts, total: int, delay_s: float) -> None:
    """Kill a run a moment after so many texts were embedded in all runs."""
    process = ForkedProcess[bytes](
        line, env=store.variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert counted.wait_for(total, 300)
    try:
        process.wait(timeout=delay_s)
    except subprocess.TimeoutExpired:
        process.kill()
    assert process.wait() == -signal.SIGKILL, "it ended by itself"


@pytest.mark.parametrize(("kind", "count", "part"), SCALES)
def test_contents_are_those_of_one_clean_run(
    kind: str, count: int, part: int, fast_folder: Path, tmp_path: Path
) -> None:
    dice = random.Random(f"{SEED} {kind} {count}")
    first = rows_of(count)
    second = changed(first, dice)
    before = write_lines(tmp_path / "before.jsonl", first)
    after = write_lines(tmp_path / "after.jsonl", second)
    with store_in(kind, fast_folder / "killed") as store, serve_counted() as (url, counted):
        for number, share in enumerate(KILLS_AT):
            corpus = before if number < BEFORE_THE_CHANGE else after
            line = command_of(store, corpus, url, part)
            run_killed(store, line, counted, int(share * count), dice.uniform(0, 0.05))
        store.run(*command_of(store, after, url, part)[1:])
        # Nothing else twice: a text that is the same in both inputs was embedded once.
        assert counted.repeated <= len(KILLS_AT) * part
        embedded = counted.total
        store.run(*command_of(store, after, url, part)[1:])
        assert counted.total == embedded
        found = store.read()
    with store_in(kind, fast_folder / "clean") as clean, serve_counted() as (url, counted):
        clean.run(*command_of(clean, after, url, part)[1:])
        assert counted.total == len(second)
        expected = clean.read()
    assert sorted(found) == sorted(row["id"] for row in second)
    assert found == expected


def test_the_stores_are_all_there() -> None:
    from vecmill.stores.addresses import STORES

    assert set(STORES) == {*HERE, *ELSEWHERE} - {"parquet"}
    assert place_in("parquet", Path("a")).address.endswith(".parquet")
