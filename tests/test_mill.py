"""The facade checks a request before any work, and hands back its own rows in its own order."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest

from support.failing_library import POISON, library_panics
from support.full_queue import fill_queue
from vecmill import Embed, InputConfig, Mill, MillConfig, MillState, QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine, Fault, FaultScript, hash_row
from vecmill.errors import (
    DeadlineExceeded,
    DeviceLost,
    InferenceFailed,
    InputLimitExceeded,
    InputTooLong,
    InvalidRequest,
    LaneLost,
    NotReady,
    QueueFull,
    RequestError,
    RequestTooLarge,
    ShuttingDown,
    TokenizationFailed,
    UnknownPrompt,
    UnsupportedTask,
)
from vecmill.models import ModelDescription, locate_model
from vecmill.operations.computation import time_limit_s
from vecmill.requests import Priority, Request, TextOptions, TextOrIds
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings, OutputDtype

R = TypeVar("R")

SMALL = InputConfig(
    max_inputs=5, max_text_characters=2_000, max_request_characters=4_000, max_request_tokens=600
)


@pytest.fixture(scope="module")
def description() -> ModelDescription:
    plain = describe_model(locate_model())
    return replace(plain, prompts={"query": "query: ", "none": ""}, default_prompt_name=None)


@pytest.fixture
async def mill(description: ModelDescription) -> AsyncIterator[Mill]:
    config = MillConfig(engine="fake", inputs=SMALL, queue=QueueConfig(timeout_s=30.0))
    async with Mill(description, config) as mill:
        yield mill


def expected(*token_ids: int) -> np.ndarray:
    return hash_row(np.array(token_ids), 384)


async def test_rows_come_in_input_order_texts_and_ids_mixed(mill: Mill) -> None:
    result = await mill.run(Embed(("hello", (7, 8, 9), "world")))
    np.testing.assert_array_equal(result.embeddings[0], expected(101, 7592, 102))
    np.testing.assert_array_equal(result.embeddings[1], expected(7, 8, 9))
    np.testing.assert_array_equal(result.embeddings[2], expected(101, 2088, 102))
    assert result.token_counts == (3, 3, 3)
    assert result.embeddings.flags.c_contiguous


async def test_long_texts_are_read_off_the_loop_and_come_out_the_same(mill: Mill) -> None:
    texts = ["hello " * 200, "world"]
    rows = await mill.embed(texts)
    np.testing.assert_array_equal(rows[0], expected(101, *[7592] * 200, 102))
    np.testing.assert_array_equal(rows[1], (await mill.embed("world"))[0])


async def test_usage_counts_what_is_left_after_truncation(mill: Mill) -> None:
    result = await mill.run(Embed(("hello " * 300,)))
    assert result.token_counts == (256,)
    with pytest.raises(InputTooLong, match=r"`input\[0\]` has 302 tokens; at most 256 are read"):
        await mill.embed("hello " * 300, truncate=False)


async def test_dimensions_cut_and_renormalise(mill: Mill) -> None:
    whole, cut = await mill.embed("hello"), await mill.embed("hello", dimensions=100)
    np.testing.assert_allclose(cut, whole[:, :100] / np.linalg.norm(whole[:, :100]), rtol=1e-6)
    np.testing.assert_array_equal(await mill.embed("hello", dimensions=384), whole)


@pytest.mark.parametrize("dimensions", [0, -1, 385])
async def test_dimensions_that_the_model_does_not_have_are_refused(mill: Mill, dimensions: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to 384") as refusal:
        await mill.embed("hello", dimensions=dimensions)
    assert refusal.value.field == "dimensions"


async def test_the_dimensions_of_bits_fill_whole_bytes(mill: Mill) -> None:
    for dimensions in (8, 16, None):
        await mill.run(Embed(("hello",), dimensions, dtypes=(OutputDtype.BINARY,)))
    with pytest.raises(InvalidRequest, match="12 dimensions do not fill whole bytes") as refusal:
        await mill.run(Embed(("hello",), 12, dtypes=(OutputDtype.BINARY,)))
    assert refusal.value.field == "dimensions"


async def test_prompts_go_in_front(mill: Mill) -> None:
    np.testing.assert_array_equal(
        await mill.embed("hello", prompt_name="query"), await mill.embed("query: hello")
    )
    with pytest.raises(UnknownPrompt, match="It has: none, query"):
        await mill.embed("hello", prompt_name="passage")
    assert mill.prompts == {"query": "query: ", "none": ""}
    np.testing.assert_array_equal(  # a name that every model knows, as in sentence-transformers
        await mill.embed("hello", prompt_name="document"), await mill.embed("hello")
    )


async def test_short_forms_say_who_asks_and_how_urgently(description: ModelDescription) -> None:
    asked: list[Request[Any]] = []

    class Listening(Mill):
        async def run(self, request: Request[R], *, wait_for_room: bool = True) -> R:
            asked.append(request)
            return await super().run(request, wait_for_room=wait_for_room)

    terms: dict[str, Any] = {"priority": "background", "client": "import", "timeout_s": 60}
    async with Listening(description, MillConfig(engine="fake")) as mill:
        await mill.embed("hello", **terms)
        await mill.rerank("hello", ["world"], **terms)
        with pytest.raises(UnsupportedTask):
            await mill.classify(["hello"], **terms)
        with pytest.raises(
            InvalidRequest, match="`priority` is 'urgent'; it must be one of interactive, bulk,"
        ):
            await mill.embed("hello", priority="urgent")  # type: ignore[arg-type]
    assert [type(each).__name__ for each in asked] == ["Embed", "Rerank", "Classify"]
    for each in asked:
        assert (each.priority, each.client, each.timeout_s) == (Priority.BACKGROUND, "import", 60)
        assert each.caller.priority is Priority.BACKGROUND
    assert Embed(("hello",), priority="bulk").caller.priority is Priority.BULK  # type: ignore[arg-type]


async def test_a_prompt_counts_towards_the_limits_of_texts_and_token_ids_have_none(mill: Mill) -> None:
    query = TextOptions("query")
    await mill.run(Embed(("a" * 1_993, (1,) * 2_000), options=query))
    with pytest.raises(InvalidRequest, match=r"`input\[0\]` has 2001 characters, prompt included"):
        await mill.run(Embed(("a" * 1_994,), options=query))


@pytest.mark.promise("bounded-input", "all-or-nothing")
@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ((), InvalidRequest),
        (("a",) * 6, InputLimitExceeded),
        (("a" * 2_001,), InputLimitExceeded),
        (("a" * 1_999,) * 3, RequestTooLarge),
        (("hello " * 290,) * 2 + ((1,) * 200,), RequestTooLarge),
        (((),), InvalidRequest),
        (((30_522,),), InvalidRequest),
        (((-1,),), InvalidRequest),
    ],
)
async def test_what_breaks_a_limit_is_refused_before_any_work(
    mill: Mill, inputs: tuple[TextOrIds, ...], error: type[RequestError]
) -> None:
    with pytest.raises(error) as refusal:
        await mill.run(Embed(inputs))
    assert refusal.value.field is not None
    assert refusal.value.field.startswith("input")
    assert mill._loaded is not None
    assert mill._loaded.dispatcher.scheduler.queue.counts.admitted == 0


@pytest.mark.parametrize("inputs", [("a" * 2_000, "a" * 1_997, "a", "a", "a"), ((1,) * 200,) * 3])
async def test_what_is_as_large_as_the_limits_allow_is_answered(
    mill: Mill, inputs: tuple[TextOrIds, ...]
) -> None:
    assert len((await mill.run(Embed(inputs))).embeddings) == len(inputs)


@pytest.mark.parametrize(
    ("priority", "timeout_s", "longest_s"),
    [
        (None, None, 30.0),
        (None, 5.0, 5.0),
        (None, 100.0, 30.0),
        (Priority.BACKGROUND, None, math.inf),
        (Priority.BACKGROUND, 100.0, 100.0),
    ],
)
async def test_a_request_can_only_shorten_its_time(
    mill: Mill, priority: Priority | None, timeout_s: float | None, longest_s: float
) -> None:
    assert mill._loaded is not None
    request = Embed(("hello",), priority=priority, timeout_s=timeout_s)
    assert time_limit_s(mill._loaded, request.caller) == longest_s


async def test_scores_are_cosines_with_the_query(mill: Mill) -> None:
    result = await mill.rerank("hello", ["world", "query: hello", "query"])
    rows = await mill.embed(["query: hello", "world", "query: hello", "query"])
    np.testing.assert_allclose(result.scores, rows[1:] @ rows[0], atol=1e-6)
    assert result.scores[1] == 1.0  # the query has the model's prompt for queries
    assert result.token_count == 16
    with pytest.raises(InvalidRequest, match="documents"):
        await mill.rerank("hello", [])
    with pytest.raises(InvalidRequest, match=r"documents\[1\]` has 2001"):
        await mill.rerank("hello", ["world", "a" * 2_001])
    assert (await mill.rerank("hello", ["world"] * 5)).scores.shape == (5,)
    with pytest.raises(InvalidRequest, match="has 6 items"):
        await mill.rerank("hello", ["world"] * 6)


@pytest.mark.promise("all-or-nothing", "goodput-kept")
async def test_nothing_is_read_while_the_queue_is_full(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fill_queue(description) as full:
        for name in ("encode_short", "encode_in_slices"):
            monkeypatch.delattr(Tokenizer, name)  # whoever reads a text now fails
        with pytest.raises(QueueFull):
            await full.mill.run(Embed(("again",)), wait_for_room=False)


async def test_a_close_that_is_cancelled_releases_the_engine_and_answers_what_runs(
    description: ModelDescription,
) -> None:
    engine = FakeEngine(dim=384, faults=FaultScript(calls={0: Fault.HANG}))
    mill = Mill(description, engine=engine)
    await mill.start()
    running = asyncio.ensure_future(mill.embed("hello"))
    await asyncio.to_thread(engine.wait_for_calls, 1)
    closing = asyncio.ensure_future(mill.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert engine.closed
    with pytest.raises(ShuttingDown):
        await running


async def test_a_lost_lane_shows_in_the_state(description: ModelDescription) -> None:
    class Losing(FakeEngine):
        def run(self, batch: Batch, *, width: int) -> Embeddings:
            rows = super().run(batch, width=width)
            if len(self.calls) != 2:
                raise DeviceLost("gone")
            return rows

    async with Mill(description, MillConfig(cores=2), engine=Losing(dim=384)) as mill:
        states = [mill.state]
        with pytest.raises(LaneLost):
            await mill.embed("hello")
        states.append(mill.state)
        assert (await mill.embed("hello")).shape == (1, 384)
        is_lost = [mill.is_lost]
        with pytest.raises(LaneLost):
            await mill.embed("hello")
        states.append(mill.state)
        is_lost.append(mill.is_lost)
        with pytest.raises(LaneLost):
            await mill.embed("hello")
    assert states == [MillState.READY, MillState.DEGRADED, MillState.LOST]
    assert is_lost == [False, True]


async def test_a_mill_goes_on_after_a_call_that_means_to_end_its_thread(
    description: ModelDescription,
) -> None:
    engine = FakeEngine(dim=384, faults=FaultScript(calls={0: Fault.DIE}))
    async with Mill(description, engine=engine) as mill:
        with pytest.raises(InferenceFailed):
            await mill.embed("hello")
        assert mill.state is MillState.READY
        assert (await mill.embed("hello")).shape == (1, 384)


@pytest.mark.promise("failure-contained")
async def test_a_library_that_panics_fails_its_request_and_no_other(description: ModelDescription) -> None:
    with library_panics():
        mill = Mill(description, MillConfig(engine="fake"))
        await mill.start()
    async with asyncio.timeout(60):
        texts = [f"hello {POISON}" if number % 4 == 0 else "hello" for number in range(32)]
        found = await asyncio.gather(*map(mill.embed, texts), return_exceptions=True)
        await mill.close()
    for text, one in zip(texts, found, strict=True):
        if text == "hello":
            np.testing.assert_array_equal(one, expected(101, 7592, 102)[None])
        else:
            assert isinstance(one, TokenizationFailed)


async def test_a_library_that_panics_on_what_was_cut_off_costs_only_its_count(
    description: ModelDescription,
) -> None:
    with library_panics():
        mill = Mill(description, MillConfig(engine="fake"))
        await mill.start()
    result = await mill.run(Embed((f"{'hello ' * 9_000} {POISON}", "hello")))
    await mill.close()
    (cut,) = result.truncated
    assert (cut.index, cut.is_exact) == (0, False)
    np.testing.assert_array_equal(result.embeddings[1], expected(101, 7592, 102))


async def test_a_mill_that_is_started_again_loads_once(description: ModelDescription) -> None:
    before = {*threading.enumerate()}
    mill = Mill(description, MillConfig(engine="fake", cores=2))
    await asyncio.gather(mill.start(), mill.start())
    await mill.start()
    lanes = [each.name for each in {*threading.enumerate()} - before if "lane" in each.name]
    assert len(lanes) == len({*lanes}) > 0
    assert (await mill.embed("hello")).shape == (1, 384)
    await mill.close()
    assert not any("lane" in each.name for each in {*threading.enumerate()} - before)


async def test_before_the_start_nothing_is_accepted(description: ModelDescription) -> None:
    mill = Mill(description)
    states = [mill.state]
    with pytest.raises(NotReady):
        await mill.embed("hello")
    await mill.close()
    await mill.close()
    states.append(mill.state)
    assert states == [MillState.LOADING, MillState.CLOSED]


@pytest.mark.parametrize("turns", range(6))
def test_a_load_that_is_cancelled_leaves_no_thread_that_waits(
    description: ModelDescription, turns: int
) -> None:
    async def cancel_after_turns() -> None:
        loading = asyncio.create_task(Mill(description, MillConfig(engine="fake")).start())
        for _ in range(turns):
            await asyncio.sleep(0)
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading

    running = threading.Thread(target=lambda: asyncio.run(cancel_after_turns()), daemon=True)
    running.start()
    running.join(20)  # the loop waits for the threads of the load
    assert not running.is_alive()


async def test_background_requests_give_way_however_small_and_old(description: ModelDescription) -> None:
    order: list[int] = []

    class Recorded(FakeEngine):
        def run(self, batch: Batch, *, width: int) -> Embeddings:
            order.append(int(batch.token_ids[0]))
            return super().run(batch, width=width)

    engine = Recorded(dim=384, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    async with Mill(description, MillConfig(cores=1), engine=engine) as mill:
        running = asyncio.ensure_future(mill.run(Embed(((7,),))))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        bulk = asyncio.ensure_future(mill.run(Embed(((8,),), priority=Priority.BACKGROUND)))
        await asyncio.sleep(0)
        small = asyncio.ensure_future(mill.run(Embed(((9,),))))
        await asyncio.sleep(0)
        engine.released.set()
        await asyncio.gather(running, bulk, small)
    assert order[-3:] == [7, 9, 8]


async def test_bulk_requests_wait_as_long_as_it_takes(description: ModelDescription) -> None:
    now = 0.0
    engine = FakeEngine(dim=384, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    config = MillConfig(cores=1, hang_s=1e9, queue=QueueConfig(timeout_s=1.0))
    async with Mill(description, config, engine=engine, clock=lambda: now) as mill:
        bulk = asyncio.ensure_future(mill.run(Embed(((8,),), priority=Priority.BACKGROUND)))
        small = asyncio.ensure_future(mill.run(Embed(((9,),))))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        now = 1e6
        assert mill._loaded is not None
        mill._loaded.dispatcher.tick()
        with pytest.raises(DeadlineExceeded):
            await small
        engine.released.set()
        assert (await bulk).embeddings.shape == (1, 384)
