"""The limits on texts, and the times of requests, hold for the queries of asymmetric models too."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from support.task_models import save_dense_router, save_sparse_router, save_task_model
from vecmill import Mill, MillConfig
from vecmill.batching.ticket import CountsSnapshot
from vecmill.config import InputConfig, QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.engines.table import TableEngine
from vecmill.errors import (
    CorruptModel,
    DeadlineExceeded,
    InvalidRequest,
    NotReady,
    QueueFull,
    RequestTooLarge,
    ShuttingDown,
    VecmillError,
)
from vecmill.models import ModelDescription, locate_model
from vecmill.operations.sides import load_query_tokenizer
from vecmill.requests import Embed, EmbedSparse, Priority, Purpose, Rerank, TextOptions
from vecmill.results import EmbedSparseResult
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings, OutputShape
from vecmill.values.observer import Observer, Rejection, Timeline

QUERY, DOCUMENT = (TextOptions(purpose=purpose) for purpose in (Purpose.QUERY, Purpose.DOCUMENT))


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    folder = tmp_path_factory.mktemp("models")
    save_sparse_router(folder / "m", save_task_model(folder / "masked", "BertForMaskedLM"))
    return describe_model(locate_model(folder / "m"))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    folder = tmp_path_factory.mktemp("models")
    save_dense_router(folder / "m", save_task_model(folder / "bert", "BertModel"))
    return describe_model(locate_model(folder / "m"))


@dataclass
class Gate:
    """Holds the look-ups back until it is open."""

    is_open: threading.Event = field(default_factory=threading.Event)
    has_begun: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, look_up = Gate(), TableEngine.run
    gate.is_open.set()

    def run(engine: TableEngine, batch: Batch, *, width: int) -> Embeddings:
        gate.has_begun.set()
        gate.is_open.wait()
        return look_up(engine, batch, width=width)

    monkeypatch.setattr(TableEngine, "run", run)
    yield gate
    gate.is_open.set()


def serve(
    description: ModelDescription, *, observer: Observer | None = None, faults: FaultScript | None = None
) -> Mill:
    """A mill with room for two queries, whose documents a fake engine computes."""
    engine = FakeEngine(dim=description.dim, output_shape=OutputShape.SPARSE, faults=faults)
    config = MillConfig(
        cores=1,
        queue=QueueConfig(max_queue_texts=3),
        inputs=InputConfig(max_inputs=4, max_text_characters=5_000, max_request_tokens=60),
    )
    return Mill(description, config, engine=engine, observer=observer)


def ask(text: str, client: str | None = None, timeout_s: float | None = None) -> EmbedSparse:
    return EmbedSparse((text,), options=QUERY, client=client, timeout_s=timeout_s)


async def close_and_ask(mill: Mill, gate: Gate) -> "asyncio.Task[EmbedSparseResult]":
    """A query whose look-up is held back."""
    gate.is_open.clear()
    gate.has_begun.clear()
    running = asyncio.create_task(mill.run(ask("the one")))
    await asyncio.to_thread(gate.has_begun.wait)
    return running


class Rejections(Observer):
    def __init__(self) -> None:
        self.reasons: list[Rejection] = []

    def rejected(self, reason: Rejection) -> None:
        self.reasons.append(reason)


@pytest.mark.promise("time-to-return", "nobody-shut-out")
async def test_a_full_queue_of_queries_refuses_with_a_time_and_one_client_has_its_share(
    description: ModelDescription, gate: Gate
) -> None:
    observer = Rejections()
    async with serve(description, observer=observer) as mill:
        running = await close_and_ask(mill, gate)
        greedy = [asyncio.create_task(mill.run(ask(text, "greedy"))) for text in ("end", "in")]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as caught:
            await mill.run(ask("of", "greedy"), wait_for_room=False)
        assert caught.value.retry_after_s > 0
        modest = asyncio.create_task(mill.run(ask("of", "modest")))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await mill.run(ask("it", "third"), wait_for_room=False)
        mill.refuse_if_full("third", 1)  # before the body is read: it may ask for a document
        (row,) = (await mill.run(EmbedSparse(("the one",), options=DOCUMENT))).embeddings
        assert len(row.columns)
        gate.is_open.set()
        await asyncio.gather(running, *greedy, modest)
        assert mill.text_counts.done == 5
    assert observer.reasons == [Rejection.QUEUE_FULL] * 2


@pytest.mark.promise("goodput-kept")
async def test_a_body_is_not_read_if_both_queues_are_full(description: ModelDescription, gate: Gate) -> None:
    faults = FaultScript(calls={0: Fault.HANG})
    async with serve(description, faults=faults) as mill:
        assert mill._model_load is not None
        engine = mill._model_load.engine
        assert isinstance(engine, FakeEngine)
        running = [await close_and_ask(mill, gate)]
        running.append(asyncio.create_task(mill.run(EmbedSparse(("the one",), options=DOCUMENT))))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        for options in (QUERY, DOCUMENT):
            mill.refuse_if_full("other", 1)
            waiting = EmbedSparse(("end", "in", "of"), options=options)
            running.append(asyncio.create_task(mill.run(waiting)))
            await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            mill.refuse_if_full("other", 1)
        gate.is_open.set()
        engine.released.set()
        await asyncio.gather(*running)


@pytest.mark.promise("departed-clients")
async def test_a_query_that_nobody_waits_for_is_not_looked_up(
    description: ModelDescription, gate: Gate
) -> None:
    async with serve(description) as mill:
        running = await close_and_ask(mill, gate)
        left = asyncio.create_task(mill.run(ask("end")))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        with pytest.raises(DeadlineExceeded):
            await mill.run(ask("in", timeout_s=0.05))
        assert mill.text_counts == CountsSnapshot(admitted=3, cancelled=1, expired=1, open=1)
        gate.is_open.set()
        await running


@pytest.mark.promise("all-or-nothing")
async def test_a_rerank_whose_documents_are_refused_leaves_no_query_behind(
    description: ModelDescription, gate: Gate
) -> None:
    faults = FaultScript(calls={0: Fault.HANG})
    async with serve(description, faults=faults) as mill:
        assert mill._model_load is not None
        engine = mill._model_load.engine
        assert isinstance(engine, FakeEngine)
        running = asyncio.create_task(mill.run(EmbedSparse(("the one",), options=DOCUMENT)))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        waiting = asyncio.create_task(mill.run(EmbedSparse(("in", "of"), options=DOCUMENT)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await mill.run(Rerank(("the one",), ("end", "one")), wait_for_room=False)
        assert mill.text_counts.open == 3  # documents
        gate.is_open.clear()
        gate.has_begun.clear()
        # A rerank that is given up leaves neither side's texts.
        ranking = asyncio.create_task(mill.run(Rerank(("the one",), ("end",), client="other")))
        await asyncio.to_thread(gate.has_begun.wait)
        assert mill.text_counts.open == 5
        ranking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ranking
        assert mill.text_counts.open == 3
        gate.is_open.set()
        engine.released.set()
        await asyncio.gather(running, waiting)


async def test_no_request_is_accepted_before_both_sides_are_loaded(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_load, load = threading.Event(), threading.Event(), TableEngine.load

    def wait_and_load(description: ModelDescription) -> TableEngine:
        begun.set()
        may_load.wait()
        return load(description)

    monkeypatch.setattr(TableEngine, "load", wait_and_load)
    mill = serve(description)
    starting = asyncio.create_task(mill.start())
    try:
        await asyncio.to_thread(begun.wait)
        for options in (QUERY, DOCUMENT):
            with pytest.raises(NotReady):
                await mill.run(EmbedSparse(("the one",), options=options))
    finally:
        may_load.set()
        await starting
    assert (await mill.run(ask("the one"))).embeddings
    await mill.close()


async def test_queries_that_wait_when_the_mill_closes_get_an_answer(
    description: ModelDescription, gate: Gate
) -> None:
    mill = serve(description)
    await mill.start()
    running = await close_and_ask(mill, gate)
    waiting = asyncio.create_task(mill.run(ask("end")))
    await asyncio.sleep(0)
    closing = asyncio.create_task(mill.close())
    with pytest.raises(ShuttingDown):
        await waiting
    gate.is_open.set()
    await closing
    assert (await running).embeddings


async def test_the_engines_of_both_sides_are_closed_with_the_mill(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[type] = []
    for kind in (FakeEngine, TableEngine):
        monkeypatch.setattr(kind, "close", lambda engine: closed.append(type(engine)))
    async with serve(description):
        assert closed == []
    assert closed == [FakeEngine, TableEngine]


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (("x",) * 5, InvalidRequest, "5 items; at most 4"),
        (("x" * 5_001,), InvalidRequest, "5001 characters"),
        (("the one " * 10,) * 4, RequestTooLarge, "80 tokens in all; at most 60"),
        ((), InvalidRequest, "`input` is empty"),
    ],
)
async def test_queries_have_the_limits_of_texts(
    description: ModelDescription, texts: tuple[str, ...], error: type[VecmillError], message: str
) -> None:
    async with serve(description) as mill:
        with pytest.raises(error, match=message):
            await mill.run(EmbedSparse(texts, options=QUERY))


async def test_equal_queries_share_a_look_up_and_background_work_is_looked_up(
    description: ModelDescription, gate: Gate
) -> None:
    async with serve(description) as mill:
        running = await close_and_ask(mill, gate)
        both = [asyncio.create_task(mill.run(ask("end"))) for _ in range(2)]
        await asyncio.sleep(0)
        assert mill.text_counts.joined == 1
        gate.is_open.set()
        await asyncio.gather(running, *both)
        lines = EmbedSparse(("end",), options=QUERY, priority=Priority.BACKGROUND)
        (row,) = (await mill.run(lines)).embeddings
        np.testing.assert_array_equal(row.values, both[0].result().embeddings[0].values)


async def test_token_ids_of_queries_are_those_of_their_own_vocabulary(dense: ModelDescription) -> None:
    engine = FakeEngine(dim=dense.dim)
    assert dense.router is not None
    tokens = dense.router.query.vocab_size
    assert tokens != dense.vocab_size
    async with Mill(dense, MillConfig(cores=1), engine=engine) as mill:
        await mill.run(Embed(((tokens - 1,),), options=QUERY))
        for token in (tokens, -1):
            with pytest.raises(InvalidRequest, match="outside this model's vocabulary"):
                await mill.run(Embed(((token,),), options=QUERY))


class Timed(Observer):
    needs_timelines = True


async def test_the_times_of_a_rerank_cover_both_sides(description: ModelDescription) -> None:
    async with serve(description, observer=Timed()) as mill:
        timeline = Timeline()
        await mill.run(Rerank(("the one",), ("end", "in"), timeline=timeline))
    (run,) = timeline.runs
    assert sum(run.batches.values()) == 3
    assert {batch.lane for batch in run.batches} == {0, 1}
    assert run.started_at == min(batch.taken_at for batch in run.batches)
    assert run.admitted_at is not None
    assert run.started_at is not None
    assert run.finished_at is not None
    assert run.admitted_at <= run.started_at
    for batch in run.batches:
        assert batch.ended_at is not None
        assert batch.ended_at <= run.finished_at
    assert not run.has_failed


def test_an_embedding_does_not_depend_on_its_company(dense: ModelDescription) -> None:
    """Texts of more tokens than are added up at once, at any place of a batch."""
    assert dense.router is not None
    query = dense.router.query
    engine, draw = TableEngine.load(query), np.random.default_rng(9)
    lengths = (1, 5_000, 3, 9_001, 2)
    texts = [TokenSequence.of(draw.integers(0, query.vocab_size + 1, length).tolist()) for length in lengths]
    together = engine.run(Batch.of(texts), width=1)
    for index, text in enumerate(texts):
        alone = engine.run(Batch.of([text]), width=1)
        np.testing.assert_allclose(together.of_text(index), alone.of_text(0), atol=1e-6)
        rows = engine._table[text.token_ids].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(alone.of_text(0)[0], rows / np.linalg.norm(rows), atol=1e-6)


def test_a_tokenizer_with_a_token_behind_the_end_of_the_table_is_refused(dense: ModelDescription) -> None:
    assert dense.router is not None
    query = dense.router.query
    last = max(load_query_tokenizer(query).library.get_vocab().values())
    load_query_tokenizer(replace(query, vocab_size=last + 1))
    with pytest.raises(CorruptModel, match=f"token ids up to {last}, but .* has only {last} entries"):
        load_query_tokenizer(replace(query, vocab_size=last))


def test_a_token_outside_the_table_is_an_error_and_no_zeros(description: ModelDescription) -> None:
    assert description.router is not None
    engine = TableEngine.load(description.router.query)
    outside = Batch.of([TokenSequence.of([description.router.query.vocab_size + 1])])
    with pytest.raises(ValueError, match="vocabulary"):
        engine.run(outside, width=1)
