"""A page is rendered once for all who ask within its longest age, and errors and cancellations stay apart."""

import asyncio
import gc
import random
from typing import Any

import pytest

from vecmill_server.app.shared_page import SharedPage

AGE_S = 1.0


class Renderer:
    """Renders the time on a clock that the test sets, when the test lets it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.copies: list[float] = []
        self.error: Exception | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.page = SharedPage(self.render, AGE_S, lambda: self.now)

    async def render(self) -> bytes:
        copied, error = self.now, self.error
        self.copies.append(copied)
        await self.may_end.wait()
        if error is not None:
            raise error
        return str(copied).encode()

    async def read(self) -> float:
        return float(await self.page.read())


async def settle() -> None:
    """Let every task do what it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_all_who_ask_at_once_share_one_rendering() -> None:
    it = Renderer()
    assert await asyncio.gather(*(it.read() for _ in range(100))) == [100.0] * 100
    assert it.copies == [100.0]


async def test_one_reader_goes_on_in_each_pass_of_the_loop() -> None:
    it = Renderer()
    readers = [asyncio.create_task(it.read()) for _ in range(20)]
    before = 0
    while before < len(readers):
        await asyncio.sleep(0)
        ended = sum(reader.done() for reader in readers)
        assert ended <= before + 1
        before = ended


async def test_a_reader_that_leaves_keeps_no_other_from_its_turn() -> None:
    it = Renderer()
    readers = [asyncio.create_task(it.read()) for _ in range(6)]
    await asyncio.sleep(0)
    for reader in readers[::2]:
        reader.cancel()
    assert await asyncio.gather(*readers[1::2]) == [100.0] * 3


async def test_a_page_is_shared_until_it_is_too_old() -> None:
    it = Renderer()
    assert await it.read() == 100.0
    it.now += AGE_S - 0.01
    assert await it.read() == 100.0
    it.now += 0.01
    assert await it.read() == it.now


async def test_who_asks_during_a_rendering_that_is_too_old_gets_the_next_one() -> None:
    it = Renderer()
    it.may_end.clear()
    early = asyncio.create_task(it.read())
    await settle()
    it.now += AGE_S
    late = [asyncio.create_task(it.read()) for _ in range(3)]
    await settle()
    assert it.copies == [100.0]  # only one runs at a time
    it.may_end.set()
    assert await early == 100.0
    assert await asyncio.gather(*late) == [101.0] * 3
    assert it.copies == [100.0, 101.0]


async def test_an_error_is_for_those_who_waited_and_is_not_kept() -> None:
    it = Renderer()
    it.error = OSError("no such file")
    found = await asyncio.gather(*(it.read() for _ in range(3)), return_exceptions=True)
    assert found == [it.error] * 3
    assert len(it.copies) == 1
    it.error = None
    assert await it.read() == it.now


async def test_a_rendering_outlives_the_request_that_began_it() -> None:
    it = Renderer()
    it.may_end.clear()
    first, second = asyncio.create_task(it.read()), asyncio.create_task(it.read())
    await settle()
    first.cancel()
    await settle()
    it.may_end.set()
    assert await second == 100.0
    assert first.cancelled()
    assert len(it.copies) == 1


async def test_an_error_that_nobody_waits_for_is_not_reported() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    it = Renderer()
    it.error = OSError("no such file")
    it.may_end.clear()
    asked = asyncio.create_task(it.read())
    await settle()
    asked.cancel()
    it.may_end.set()
    await settle()
    del it, asked
    gc.collect()
    await settle()
    assert reported == []


async def test_a_page_that_nobody_asks_for_is_not_rendered() -> None:
    it = Renderer()
    await it.read()
    it.now += 10 * AGE_S
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(it.copies) == 1


@pytest.mark.parametrize("seed", range(20))
async def test_no_page_is_older_than_it_may_be_when_it_is_asked_for(seed: int) -> None:
    chance = random.Random(seed)
    it = Renderer()
    asked: list[tuple[float, asyncio.Task[float]]] = []
    for _ in range(200):
        it.now += chance.choice((0.0, 0.0, 0.1, 0.3, 0.9, 2.0))
        if chance.random() < 0.3:
            it.may_end.set()
        elif chance.random() < 0.3:
            it.may_end.clear()
        asked.append((it.now, asyncio.create_task(it.read())))
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
    it.may_end.set()
    for at, task in asked:
        assert await task > at - AGE_S
    assert len(it.copies) < len(asked)
