"""An answer waits for the count of the tokens that were cut off, but neither long nor beyond its deadline."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from support.described_models import describe_tasks
from vecmill import Embed, Mill, MillConfig, Priority, Rerank
from vecmill.config import InputConfig, OnLongInput
from vecmill.errors import InputTooLong
from vecmill.models import Task
from vecmill.operations import computation
from vecmill.requests import TextOptions, Truncation
from vecmill.results import Truncated
from vecmill.tokenization.pieces import PieceReader

pytestmark = pytest.mark.promise("truncation-told")

FAKE = MillConfig(engine="fake")
WORDS = 20_000
TEXT = "cat " * WORDS
EXACT = Truncated(1, WORDS + 2 - 256)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold each count until the event is set."""
    released, count = threading.Event(), PieceReader.count_part

    def count_later(self: PieceReader, text: str, start: int, end: int) -> int:
        assert released.wait(20)
        return count(self, text, start, end)

    monkeypatch.setattr(PieceReader, "count_part", count_later)
    yield released
    released.set()


async def test_an_answer_has_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computation, "COUNT_WAIT_S", 20.0)
    async with Mill(config=FAKE) as mill:
        assert (await mill.run(Embed(("a cat", TEXT)))).truncated == (EXACT,)


async def test_an_answer_does_not_wait_long_and_has_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    monkeypatch.setattr(computation, "COUNT_WAIT_S", 0.01)
    async with Mill(config=FAKE) as mill:
        # With a time limit, as every request of a server has one.
        (found,) = (await mill.run(Embed(("a cat", TEXT), timeout_s=60.0))).truncated
        assert (found.index, found.is_exact) == (1, False)
        assert 0 < found.token_count < EXACT.token_count
        held.set()
        # What was left is dropped, and the next request finds its turn.
        monkeypatch.setattr(computation, "COUNT_WAIT_S", 20.0)
        assert (await mill.run(Embed(("a cat", TEXT), timeout_s=60.0))).truncated == (EXACT,)


async def test_an_answer_does_not_wait_beyond_its_deadline(
    monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    monkeypatch.setattr(computation, "COUNT_WAIT_S", 1_000.0)
    async with Mill(config=FAKE) as mill:
        result = await asyncio.wait_for(mill.run(Embed(("a cat", TEXT), timeout_s=1.0)), 15)
    assert not result.truncated[0].is_exact


async def test_an_answer_without_a_deadline_waits_to_the_end(
    monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    monkeypatch.setattr(computation, "COUNT_WAIT_S", 0.0)
    async with Mill(config=FAKE) as mill:
        task = asyncio.create_task(mill.run(Embed(("a cat", TEXT), priority=Priority.BACKGROUND)))
        await mill.run(Embed(("a dog",)))
        assert not task.done()
        held.set()
        assert (await task).truncated == (EXACT,)


async def test_a_request_that_fails_ends_its_count(held: threading.Event) -> None:
    async with Mill(config=FAKE) as mill:
        task = asyncio.create_task(mill.run(Embed(("a cat", TEXT), priority=Priority.BACKGROUND)))
        await mill.run(Embed(("a dog",)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]


async def test_a_query_of_many_pairs_is_counted_once() -> None:
    read: list[int] = []
    count = PieceReader.count_part

    def note(self: PieceReader, text: str, start: int, end: int) -> int:
        read.append(end - start)
        return count(self, text, start, end)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PieceReader, "count_part", note)
        patched.setattr(computation, "COUNT_WAIT_S", 20.0)
        async with Mill(describe_tasks()[Task.RERANK], FAKE) as mill:
            found = await mill.run(Rerank((TEXT,), ("a cat", "a dog", "a fox")))
    assert found.truncated == tuple(Truncated(index, WORDS + 2 + 3 - 256) for index in range(3))
    assert sum(read) < len(TEXT)


async def test_the_setting_decides_for_requests_that_do_not_say() -> None:
    async with Mill(
        config=MillConfig(engine="fake", inputs=InputConfig(on_long_input=OnLongInput.ERROR))
    ) as mill:
        with pytest.raises(InputTooLong, match=r"`input\[1\]` has 20002 tokens"):
            await mill.run(Embed(("a cat", TEXT)))
        with pytest.raises(InputTooLong):
            await mill.embed(TEXT)
        assert len(await mill.embed(TEXT, truncate=True)) == 1
        options = TextOptions(truncation=Truncation(is_allowed=True))
        assert (await mill.run(Embed((TEXT,), options=options))).truncated_count == 1
