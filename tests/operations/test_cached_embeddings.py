"""Texts whose embedding is kept are not computed again, and their answers are those of texts that are."""

import random
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.cached_embeddings import key_of as key_of_result
from support.cached_embeddings import result_of
from support.http_server import fake_engine
from vecmill import Embed, EmbedOutputs, InputConfig, Mill, MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.base import Engine
from vecmill.engines.fake import FakeEngine
from vecmill.errors import (
    InputTooLong,
    InvalidRequest,
    QueueFull,
    RequestError,
    RequestTooLarge,
    ShuttingDown,
)
from vecmill.models import ModelDescription, locate_model
from vecmill.operations import output_ranges
from vecmill.operations.cache_keys import KeyedCache
from vecmill.requests import Purpose, TextOptions, Truncation
from vecmill.results import EmbedResult
from vecmill.tokenization.prompts import Prompt
from vecmill.values.clock import monotonic
from vecmill.values.observer import Observer, Timeline
from vecmill_server.service.embedding_cache.memory_tier import ENTRY_BYTES, MemoryTier
from vecmill_server.service.embedding_cache.tiered_cache import TieredCache

DIM = 384
ROOM = 64 * 1024 * 1024
SMALL = InputConfig(
    max_inputs=8, max_text_characters=3_000, max_request_characters=12_000, max_request_tokens=600
)
LONG = "hello " * 300  # 302 tokens, of which the model reads 256


class Lookups(Observer):
    """Adds up what was found and what was not."""

    def __init__(self) -> None:
        self.found = [0, 0, 0]

    def cache_searched(self, in_memory: int, on_disk: int, missing: int) -> None:
        self.found = [sum(each) for each in zip(self.found, (in_memory, on_disk, missing), strict=True)]


@pytest.fixture(scope="module")
def description() -> ModelDescription:
    plain = describe_model(locate_model())
    return replace(plain, prompts={"query": "query: ", "document": ""}, default_prompt_name=None)


@asynccontextmanager
async def open_mill(
    description: ModelDescription, cache: TieredCache | None, engine: Engine | None = None, **named: Any
) -> AsyncIterator[Mill]:
    mill = Mill(description, MillConfig(inputs=SMALL), engine=engine or FakeEngine(dim=DIM), **named)
    mill.embedding_cache = cache
    async with mill:
        yield mill


@pytest.fixture
def cache() -> TieredCache:
    return TieredCache(MemoryTier(ROOM))


@pytest.fixture
async def mill(description: ModelDescription, cache: TieredCache) -> AsyncIterator[Mill]:
    async with open_mill(description, cache) as mill:
        yield mill


@pytest.fixture
async def plain(description: ModelDescription) -> AsyncIterator[Mill]:
    """A mill that keeps nothing."""
    async with open_mill(description, None) as mill:
        yield mill


def texts_computed(mill: Mill) -> int:
    """How many texts have entered the queue."""
    return mill.text_counts.admitted


def assert_same(one: EmbedResult, other: EmbedResult) -> None:
    np.testing.assert_array_equal(one.embeddings, other.embeddings)
    assert one.token_counts == other.token_counts
    assert [cut.index for cut in one.truncated] == [cut.index for cut in other.truncated]


async def test_a_text_is_computed_once(description: ModelDescription, cache: TieredCache) -> None:
    lookups = Lookups()
    async with open_mill(description, cache, observer=lookups) as mill:
        first = await mill.run(Embed(("hello", LONG)))
        second = await mill.run(Embed((LONG, "hello", "hello")))
        assert (first.cached_count, second.cached_count) == (0, 3)
        assert texts_computed(mill) == 2
        np.testing.assert_array_equal(second.embeddings, first.embeddings[[1, 0, 0]])
        assert second.token_counts == (256, 3, 3)
        assert second.truncated_count == 1
        assert second.timings.inference_s == second.timings.queue_s == 0
    assert lookups.found == [3, 0, 2]
    async with open_mill(description, cache) as mill:  # another mill of the same model
        assert (await mill.run(Embed(("hello",)))).cached_count == 1


async def test_only_the_missing_texts_are_computed(mill: Mill, plain: Mill) -> None:
    await mill.run(Embed(("b", (7, 8, 9))))
    request = Embed(("a", "b", (7, 8), (7, 8, 9), LONG))
    mixed = await mill.run(request)
    assert mixed.cached_count == 2
    assert texts_computed(mill) == 5
    assert_same(mixed, await plain.run(request))


async def test_a_kept_embedding_does_not_keep_all_that_its_call_computed(
    mill: Mill, cache: TieredCache
) -> None:
    await mill.run(Embed(("a", "b")))
    kept = cache._recent._embeddings.values()
    assert [one.values.base is None for one in kept] == [True, True]


async def test_what_is_made_of_an_embedding_is_made_of_a_kept_one_too(mill: Mill, plain: Mill) -> None:
    await mill.run(Embed(("hello",)))
    for changes in ({"dimensions": 64}, {"normalize": True}, {"dimensions": 64, "normalize": False}):
        request = Embed(("hello",), **changes)
        found = await mill.run(request)
        assert found.cached_count == 1
        assert_same(found, await plain.run(request))
    outputs = await mill.run(EmbedOutputs(("hello",), sparse=False, vectors=False))
    np.testing.assert_array_equal(outputs.dense, (await plain.run(Embed(("hello",)))).embeddings)
    assert texts_computed(mill) == 1


def random_request(dice: random.Random) -> Embed:
    texts = ("a", "b", "c d", LONG, (7, 8, 9), "", "x" * 2_900)
    options = TextOptions(
        purpose=dice.choice((None, Purpose.QUERY)),
        prompt=dice.choice((None, None, "say ")),
        truncation=Truncation(
            dice.random() < 0.7, dice.choice((None, True, False)), dice.choice((None, None, 5, 300))
        ),
    )
    return Embed(
        tuple(dice.choices(texts, (9, 9, 9, 3, 3, 1, 1), k=dice.randint(0, 9))),
        dice.choice((None, 10, 500)),
        dice.choice((None, True, False)),
        options=options,
        owner=dice.choice((None, "one", "two")),
    )


async def outcome(mill: Mill, request: Embed) -> EmbedResult | tuple[type, str]:
    try:
        return await mill.run(request)
    except RequestError as error:
        return type(error), error.message


@pytest.mark.promise("never-an-old-vector")
async def test_answers_and_errors_are_those_of_a_server_without_a_cache(mill: Mill, plain: Mill) -> None:
    dice, hits = random.Random(20_261_125), 0
    for _ in range(300):
        request = random_request(dice)
        found, expected = await outcome(mill, request), await outcome(plain, request)
        if isinstance(found, EmbedResult):
            assert isinstance(expected, EmbedResult)
            assert_same(found, expected)
            hits += found.cached_count
        else:
            assert found == expected, request
    assert hits > 100


async def test_a_kept_text_that_was_cut_is_refused_where_cutting_is_not_allowed(mill: Mill) -> None:
    strict = TextOptions(truncation=Truncation(False))
    await mill.run(Embed(("a", "b", LONG)))
    with pytest.raises(InputTooLong, match="has 302 tokens; at most 256"):
        await mill.run(Embed(("a", "b", LONG), options=strict))
    assert (await mill.run(Embed(("a", "b"), options=strict))).cached_count == 2


async def test_a_lower_bound_of_what_was_cut_off_is_kept_as_one(
    description: ModelDescription, cache: TieredCache
) -> None:
    uncounted = replace(SMALL, max_text_characters=12_000, max_counted_characters=0)
    mill = Mill(description, MillConfig(inputs=uncounted), engine=FakeEngine(dim=DIM))
    mill.embedding_cache, text = cache, "cat " * 2_900
    async with mill:
        (cut,) = (await mill.run(Embed((text,)))).truncated
        assert not cut.is_exact
        for inputs in ((text,), (text, "a")):  # found alone, and beside one that is computed
            found = await mill.run(Embed(inputs))
            assert (found.cached_count, found.truncated) == (1, (cut,))


async def test_limits_hold_for_kept_texts(description: ModelDescription, cache: TieredCache) -> None:
    async with open_mill(description, cache) as mill:
        await mill.run(Embed((LONG, "a")))
        with pytest.raises(RequestTooLarge, match="768 tokens"):
            await mill.run(Embed((LONG,) * 3))
        with pytest.raises(RequestTooLarge, match="at most 600"):
            await mill.run(Embed((LONG, LONG, "b " * 200)))
        with pytest.raises(InvalidRequest, match="at most 8"):
            await mill.run(Embed(("a",) * 9))
        with pytest.raises(InvalidRequest, match="is empty"):
            await mill.run(Embed(()))
    with pytest.raises(ShuttingDown):
        await mill.run(Embed(("a",)))


async def test_a_kept_text_needs_no_room_in_the_queue(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    await mill.run(Embed(("a",)))

    def refuse(*_: object) -> None:
        raise QueueFull("full", retry_after_s=1.0)

    assert mill._loaded is not None
    monkeypatch.setattr(mill._loaded.dispatcher, "refuse_if_full", refuse)
    assert (await mill.run(Embed(("a",)))).cached_count == 1
    with pytest.raises(QueueFull):
        await mill.run(Embed(("a", "b")), wait_for_room=False)


@pytest.mark.promise("never-an-old-vector")
async def test_no_owner_finds_what_another_has_sent(mill: Mill) -> None:
    for owner in (None, "", "one", "two", "none", "null"):
        assert (await mill.run(Embed(("secret",), owner=owner))).cached_count == 0
        assert (await mill.run(Embed(("secret",), owner=owner))).cached_count == 1


CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "identity": lambda it: {**it, "identity": "another"},
    "owner": lambda it: {**it, "owner": "another"},
    "no owner": lambda it: {**it, "owner": None},
    "prompt": lambda it: {**it, "prompt": Prompt("query: ")},
    "adapter": lambda it: {**it, "prompt": Prompt("", 1)},
    "side": lambda it: {**it, "route": Purpose.QUERY},
    "cuts the beginning": lambda it: {**it, "truncation": Truncation(keeps_end=True)},
    "cuts the end": lambda it: {**it, "truncation": Truncation(keeps_end=False)},
    "fewer tokens": lambda it: {**it, "truncation": Truncation(max_tokens=5)},
    "another text": lambda it: {**it, "input": "12"},
    "case": lambda it: {**it, "input": "1,2\n"},
    "token ids": lambda it: {**it, "input": (1, 2)},
    "a token id": lambda it: {**it, "input": (12,)},
    "prompt as text": lambda it: {**it, "input": "query: 1,2"},
    "half a character": lambda it: {**it, "input": "\ud800"},
    "empty": lambda it: {**it, "input": ""},
}


def key_of(parts: dict[str, Any]) -> bytes:
    keyed = KeyedCache(TieredCache(MemoryTier(0)), parts["identity"], Observer(), monotonic)
    names = ("prompt", "route", "truncation", "owner")
    (key,) = keyed.keys((parts["input"],), *(parts[name] for name in names))
    return key


@pytest.mark.promise("never-an-old-vector")
def test_any_change_of_what_an_embedding_depends_on_changes_the_key() -> None:
    usual = {
        "identity": "a model",
        "owner": "one",
        "prompt": Prompt(""),
        "route": Purpose.DOCUMENT,
        "truncation": Truncation(),
        "input": "1,2",
    }
    keys = {key_of(change(usual)) for change in CHANGES.values()} | {key_of(usual)}
    assert len(keys) == len(CHANGES) + 1
    assert key_of({**usual, "truncation": Truncation(is_allowed=False)}) == key_of(usual)


@pytest.mark.promise("never-an-old-vector")
async def test_another_model_precision_device_or_length_finds_nothing(
    description: ModelDescription, cache: TieredCache
) -> None:
    engine = FakeEngine(dim=DIM)
    engines = []
    for change in ({"precision": "int8"}, {"device": "cuda:0"}, {"max_tokens": 128}):
        other = FakeEngine(dim=DIM)
        other.info = replace(other.info, **change)
        engines.append(other)
    described = [replace(description, max_tokens=200), replace(description, prompts={"query": "ask: "})]
    async with open_mill(description, cache, engine) as mill:
        await mill.run(Embed(("a",)))
    for other in engines:
        # Under another name no embeddings are stored to compare with.
        async with open_mill(replace(description, name="a copy"), cache, other) as mill:
            assert (await mill.run(Embed(("a",)))).cached_count == 0
    for each in described:
        async with open_mill(each, cache, fake_engine(each)) as mill:
            assert (await mill.run(Embed(("a",)))).cached_count == 0
    async with open_mill(replace(description, name="a copy"), cache) as mill:
        assert (await mill.run(Embed(("a",)))).cached_count == 1


async def test_the_times_of_a_request_without_work_are_recorded(mill: Mill) -> None:
    await mill.run(Embed(("a",)))
    timeline = Timeline()
    await mill.run(Embed(("a", "a"), timeline=timeline))
    (run,) = timeline.runs
    assert (run.texts, run.tokens) == (2, 6)
    assert run.tokenized_at is not None
    assert run.resumed_at is not None
    assert run.admitted_at is None


async def test_the_sample_of_a_model_is_not_kept_as_a_result(
    description: ModelDescription, cache: TieredCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ranges, "QUIET_S", 0.0)
    wide = replace(SMALL, max_inputs=64, max_request_tokens=60_000, max_request_characters=10**6)
    mill = Mill(description, MillConfig(inputs=wide), engine=FakeEngine(dim=DIM))
    mill.embedding_cache = cache
    async with mill:
        await mill.measure_ranges()
    assert cache.memory_bytes == 0


def test_memory_counts_what_the_results_take() -> None:
    recent = MemoryTier(ROOM)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2_000):
            recent.add(key_of_result(number), result_of(number, DIM))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.8 * recent.size < taken < recent.size


def test_the_least_recently_used_results_are_dropped() -> None:
    room = 10 * (ENTRY_BYTES + 4 * DIM)
    recent = MemoryTier(room)
    for number in range(10):
        recent.add(key_of_result(number), result_of(number, DIM))
    assert recent.size == room
    assert recent.find(key_of_result(0)) is not None
    recent.add(key_of_result(10), result_of(10, DIM))
    recent.add(key_of_result(10), result_of(10, DIM))
    assert recent.size == room
    assert [number for number in range(11) if recent.find(key_of_result(number)) is None] == [1]
    recent.add(key_of_result(11), result_of(11, 100_000))  # does not fit
    assert recent.find(key_of_result(11)) is None
    assert recent.size == room
    whole = (room - ENTRY_BYTES) // 4  # fits alone
    recent.add(key_of_result(12), result_of(12, whole))
    assert recent.find(key_of_result(12)) is not None
    assert recent.find(key_of_result(10)) is None
