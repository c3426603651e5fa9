"""Work that grows with a request is not done on the event loop, and prompts count towards its size."""

import importlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.described_models import describe_tasks
from vecmill import (
    Classify,
    ClassifyTokens,
    Detokenize,
    Embed,
    EmbedSparse,
    EmbedTokens,
    InputConfig,
    Mill,
    MillConfig,
    Rerank,
    ScoreTokens,
    TextOptions,
    Tokenize,
    Truncation,
)
from vecmill.engines.fake import FakeEngine
from vecmill.errors import DeadlineExceeded, InvalidRequest, RequestTooLarge
from vecmill.models import ModelDescription, Task
from vecmill.models.heads import PairTemplate
from vecmill.requests import Request
from vecmill.tokenization.tokenizer import Tokenizer

FAKE = MillConfig(
    engine="fake", inputs=InputConfig(max_text_characters=10_000, max_request_characters=20_000)
)
MANY = tuple(f"text {number} of a few words" for number in range(400))

# A large request of each kind -> the function that makes its result.
FINISHING: dict[str, tuple[Task, Request[Any], str]] = {
    "embeddings": (Task.EMBED, Embed(MANY, dimensions=100), "vectors.finish_embeddings"),
    "token embeddings": (Task.MULTI_VECTOR, EmbedTokens(MANY), "operations.embed.keep_tokens"),
    "chunks": (
        Task.MULTI_VECTOR,
        Embed(MANY[:50], late_chunking=True),
        "operations.late_chunking.average_texts",
    ),
    "entities": (Task.CLASSIFY_TOKENS, ClassifyTokens(MANY), "operations.classify.softmax"),
    "scores of tokens": (Task.CLASSIFY_TOKENS, ScoreTokens(MANY), "operations.classify.softmax"),
    "labels": (Task.CLASSIFY, Classify(MANY), "operations.classify.activate_logits"),
    "cosines": (Task.EMBED, Rerank(("query",), MANY), "operations.rerank_methods.similarity_scores"),
    "sparse products": (
        Task.SPARSE,
        Rerank(("query",), MANY[:50]),
        "operations.rerank_methods.sparse_product",
    ),
    "token matches": (
        Task.MULTI_VECTOR,
        Rerank(("query",), MANY),
        "operations.rerank_methods.max_similarity",
    ),
}


def describe(task: Task) -> ModelDescription:
    description = describe_tasks()[task]
    if task is Task.CLASSIFY:
        assert description.head is not None
        head = replace(description.head, labels=tuple(map(str, range(200))))
        return replace(description, dim=200, head=head)
    if task is Task.EMBED:
        return replace(description, dim=384)
    return replace(description, max_tokens=2_000) if task is Task.MULTI_VECTOR else description


def record_threads(monkeypatch: pytest.MonkeyPatch, place: str) -> set[str]:
    """Note the threads that call the function at `place` in the library."""
    path, _, name = f"vecmill.{place}".rpartition(".")
    module = importlib.import_module(path)
    function: Callable[..., Any] = getattr(module, name)
    threads: set[str] = set()

    def recorded(*given: Any, **named: Any) -> Any:
        threads.add(threading.current_thread().name)
        return function(*given, **named)

    monkeypatch.setattr(module, name, recorded)
    return threads


@pytest.mark.parametrize("kind", FINISHING)
async def test_large_results_are_made_in_a_thread(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    task, request, place = FINISHING[kind]
    threads = record_threads(monkeypatch, place)
    async with Mill(describe(task), FAKE) as mill:
        await mill.run(request)
    assert threads
    assert all(name.startswith("vecmill-compute") for name in threads)


async def test_small_results_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = record_threads(monkeypatch, "vectors.stack_embeddings")
    async with Mill(describe(Task.EMBED), FAKE) as mill:
        await mill.run(Embed(MANY[:16]))
    assert threads == {threading.current_thread().name}


LONG_PROMPT = TextOptions(prompt="word " * 400)  # 2,000 characters


@pytest.mark.parametrize(
    ("task", "make"),
    [
        (Task.EMBED, lambda count, options: Embed(("a",) * count, options=options)),
        (Task.SPARSE, lambda count, options: EmbedSparse(("a",) * count, options=options)),
        (Task.MULTI_VECTOR, lambda count, options: EmbedTokens(("a",) * count, options=options)),
        (Task.CLASSIFY, lambda count, options: Classify(("a", ("b", "c")) * (count // 2), options=options)),
        (Task.EMBED, lambda count, options: Rerank(("a",) * count, ("b",) * count, options=options)),
    ],
)
async def test_a_prompt_counts_once_for_each_text(
    task: Task, make: Callable[[int, TextOptions], Request[Any]]
) -> None:
    description = describe_tasks()[task]
    async with Mill(description, FAKE) as mill:
        await mill.run(make(8, LONG_PROMPT))
        with pytest.raises(RequestTooLarge, match="characters in all"):
            await mill.run(make(10, LONG_PROMPT))
        with pytest.raises(InvalidRequest, match="characters, prompt included; at most 10000"):
            await mill.run(make(2, TextOptions(prompt="a" * 10_000)))


async def test_a_template_repeats_the_query_for_each_document() -> None:
    template = PairTemplate(start="", body="{query} {document}", end="", instruction="")
    description = replace(describe_tasks()[Task.RERANK], pair_template=template)
    async with Mill(description, FAKE) as mill:
        await mill.run(Rerank(("word " * 400,), ("a",) * 8))
        with pytest.raises(RequestTooLarge):
            await mill.run(Rerank(("word " * 400,), ("a",) * 11))


@pytest.mark.promise("bounded-input")
async def test_the_tokens_of_a_request_are_bounded_without_an_engine_too() -> None:
    inputs = InputConfig(max_request_tokens=1_000)
    async with Mill(describe_tasks()[Task.EMBED], MillConfig(engine="fake", inputs=inputs)) as mill:
        assert (await mill.run(Tokenize(("a " * 998,)))).token_count == 1_000
        with pytest.raises(RequestTooLarge, match="more than 1000 tokens in all"):
            await mill.run(Tokenize(("a " * 600,) * 2))
        with pytest.raises(RequestTooLarge, match="has 1001 tokens in all"):
            await mill.run(Detokenize(((2_000,) * 1_001,)))


@pytest.mark.promise("deadlines-kept")
async def test_the_deadline_counts_from_the_acceptance_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    encode_short = Tokenizer.encode_short

    def encode_slowly(*given: Any) -> Any:
        nonlocal now
        now += 2.0  # as long as tokenising takes
        return encode_short(*given)

    monkeypatch.setattr(Tokenizer, "encode_short", encode_slowly)
    engine = FakeEngine(dim=8)
    description = describe_tasks()[Task.EMBED]
    async with Mill(description, FAKE, engine=engine, clock=lambda: now) as mill:
        await mill.run(Embed(("in time",), timeout_s=2.5))
        with pytest.raises(DeadlineExceeded):
            await mill.run(Embed(("late",), timeout_s=1.5))


@pytest.mark.promise("malformed-input", "finite-embeddings")
async def test_texts_of_strange_characters_are_embedded_or_refused() -> None:
    texts = (
        *("", " ", "\t\n\u3000", "\0", "a\0b", "\ufeff", "\u200d" * 500, "👩\u200d👩\u200d👧\u200d👦" * 200),
        *("e" + "\u0301" * 100_000, "é" * 1_000, "漢" * 200_000, "𝔘𝔫𝔦" * 10_000, "😀" * 10_000),
        *("שלום עולם " * 5_000, "\u202eabc" * 10_000, "a" * 50_000, " " * 50_000, "क्\u200dष" * 10_000),
    )
    description = describe_tasks()[Task.EMBED]
    library = Tokenizer.load(description).library
    async with Mill(description, MillConfig(engine="fake")) as mill:
        assert mill._loaded is not None
        whole = [library.encode(text).ids for text in texts]
        for truncation in (Truncation(), Truncation(keeps_end=True)):
            sequences = mill._loaded.tokenizer.encode(texts, truncation=truncation)
            for (first, *body, last), sequence in zip(whole, sequences, strict=True):
                kept = body[-254:] if truncation.keeps_end else body[:254]
                assert sequence.token_ids.tolist() == [first, *kept, last]
        assert len((await mill.run(Embed(texts))).embeddings) == len(texts)
        with pytest.raises(InvalidRequest, match="half of a surrogate pair"):
            await mill.run(Embed(("word " * 100_000 + "\ud800",)))
