"""Every server that is asked, and what it is asked."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx

from recorded.freezing import StillClock
from recorded.requests import (
    batches,
    cohere,
    connections,
    embeddings,
    flag_embedding,
    llama_cpp,
    pictures,
    rankings,
    reading,
    rerank,
    side_routes,
    tei,
    vllm,
)
from recorded.serving import Configuration, Models, Running
from support.described_models import PROMPTS, describe_tasks, token_ids
from support.http_server import QUIET, wait_until
from vecmill.config import InputConfig, MillConfig, QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.errors import DeviceLost
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel
from vecmill_server.base.settings import MetricAliases, RerankDocument, TokenIds

ONE_CORE = MillConfig(cores=1)


class TimedEngine(FakeEngine):
    """Each call takes a quarter of a second on `clock`."""

    def __init__(self, description: ModelDescription, clock: StillClock) -> None:
        super().__init__(dim=description.dim, max_tokens=description.max_tokens, lane_widths=(1,))
        self._clock = clock

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        self._clock.advance(0.25)
        return super().run(batch, width=width)


class LostEngine(FakeEngine):
    """Its device is gone at the first call."""

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        raise DeviceLost("The device is gone.")


class SlowEngine(FakeEngine):
    """Is warm once `may_load` is set."""

    def __init__(self, description: ModelDescription) -> None:
        super().__init__(dim=description.dim, max_tokens=description.max_tokens, lane_widths=(1,))
        self.may_load = threading.Event()

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        self.may_load.wait()
        return super().warm_up(texts)


def fake(description: ModelDescription, faults: FaultScript | None = None) -> FakeEngine:
    """An engine of the model's shape with one lane, which is given whatever waits, in order."""
    return FakeEngine(
        dim=description.dim,
        max_tokens=description.max_tokens,
        lane_widths=(1,),
        output_shape=description.output_shape,
        faults=faults,
    )


def every_task(_clock: StillClock) -> Models:
    """A model for each task, and the fake engine."""
    return [(found, fake(found)) for found in describe_tasks().values()]


def some_tasks(*tasks: Task) -> Callable[[StillClock], Models]:
    """The same for these tasks alone."""
    return lambda _clock: [(found, fake(found)) for task, found in describe_tasks().items() if task in tasks]


def embedder(_clock: StillClock) -> Models:
    """The first of these models alone."""
    found = describe_tasks()[Task.EMBED]
    return [(found, fake(found))]


def faulty(faults: FaultScript) -> Callable[[StillClock], Models]:
    """The same, with an engine that fails."""

    def make(_clock: StillClock) -> Models:
        found = describe_tasks()[Task.EMBED]
        return [(found, fake(found, faults))]

    return make


def failing(_clock: StillClock) -> Models:
    """The same, with an engine that fails at some calls, and whenever it reads the word poison."""
    word = frozenset(token_ids("poison")[1:-1].tolist())
    faults = FaultScript(calls={1: Fault.RAISE, 2: Fault.NAN, 3: Fault.SHORT}, poison=word)
    return faulty(faults)(_clock)


def timed(clock: StillClock) -> Models:
    """The same, with an engine that takes its time."""
    found = describe_tasks()[Task.EMBED]
    return [(found, TimedEngine(found, clock))]


def lost(_clock: StillClock) -> Models:
    """The same, with an engine that loses its device."""
    found = describe_tasks()[Task.EMBED]
    return [(found, LostEngine(dim=found.dim, max_tokens=found.max_tokens, lane_widths=(1,)))]


def slow(_clock: StillClock) -> Models:
    """The same, with an engine that loads until the end."""
    found = describe_tasks()[Task.EMBED]
    return [(found, SlowEngine(found))]


def prompted(_clock: StillClock) -> Models:
    """The same, with prompts."""
    found = replace(describe_tasks()[Task.EMBED], prompts=PROMPTS, default_prompt_name=None)
    return [(found, fake(found))]


def real(_clock: StillClock) -> Models:
    """The embedded model and its engine."""
    return [(describe_model(locate_model()), None)]


@contextmanager
def loading(running: Running) -> Iterator[None]:
    """The model is loaded at the end."""
    ((_, engine),) = running.models
    assert isinstance(engine, SlowEngine)
    try:
        yield
    finally:
        engine.may_load.set()


@contextmanager
def releasing(running: Running) -> Iterator[None]:
    """What hangs goes on at the end."""
    ((_, engine),) = running.models
    assert isinstance(engine, FakeEngine)
    try:
        yield
    finally:
        engine.released.set()


@contextmanager
def occupied(running: Running) -> Iterator[None]:
    """One text hangs in the engine, and three wait."""
    ((_, engine),) = running.models
    assert isinstance(engine, FakeEngine)
    with ExitStack() as stack, releasing(running):
        for texts in (["hangs"], ["waits", "waits too", "and so does this"]):
            _post_beside(stack, running.client, texts)
            wait_until(lambda: len(engine.calls) == 1)
        wait_until(lambda: running.metric("vecmill_texts_admitted_total", model="model/embed") == 4)
        yield


def _post_beside(stack: ExitStack, client: httpx.Client, texts: Sequence[str]) -> None:
    thread = threading.Thread(target=client.post, args=("/v1/embeddings",), kwargs={"json": {"input": texts}})
    thread.start()
    stack.callback(thread.join)


@contextmanager
def stopping(running: Running) -> Iterator[None]:
    """Somebody has asked the server to stop, and it still serves."""
    running.service.drain.stop(time.monotonic())
    yield


CONFIGURATIONS: tuple[Configuration, ...] = (
    Configuration(
        "tasks",
        (
            *embeddings.ANSWERED,
            *embeddings.REFUSED,
            *cohere.CASES,
            *rerank.CASES,
            *rankings.CASES,
            *llama_cpp.CASES,
            *tei.EMBED,
            *tei.PREDICT,
            *tei.HUGGING_FACE,
            *vllm.CASES,
            *vllm.OLLAMA,
            *reading.MODELS,
            *reading.PROBES,
            *reading.DOCS,
            *reading.NOWHERE,
            *reading.BATCHES_OFF,
            *reading.EACH_PATH,
            *flag_embedding.CASES,
            *side_routes.CASES,
            *pictures.CASES,
        ),
        every_task,
    ),
    Configuration(
        "real",
        (*embeddings.REAL, *cohere.REAL, *rerank.REAL, *tei.REAL, *vllm.REAL, *reading.REAL_MODELS),
        real,
        tolerance=1e-4,
        digits=5,
    ),
    Configuration("connections", connections.RAW, embedder),
    Configuration("prompts", embeddings.PROMPTED, prompted),
    Configuration("together", tei.TOGETHER, embedder, runs_at_once=True),
    Configuration("timings", connections.TIMED, timed),
    Configuration(
        "native-ids",
        (*embeddings.NATIVE_IDS, *connections.NATIVE_DESCRIPTION),
        some_tasks(Task.EMBED, Task.MULTI_VECTOR),
        replace(QUIET, token_ids=TokenIds.NATIVE),
    ),
    Configuration("cl100k-ids", embeddings.CL100K_IDS, embedder, replace(QUIET, token_ids=TokenIds.CL100K)),
    Configuration(
        "plain-documents",
        rerank.PLAIN_DOCUMENTS,
        some_tasks(Task.RERANK),
        replace(QUIET, rerank_document=RerankDocument.STRING),
    ),
    Configuration(
        "metric-aliases",
        connections.COUNTED,
        some_tasks(Task.EMBED, Task.RERANK, Task.CLASSIFY),
        replace(QUIET, metric_aliases=tuple(MetricAliases)),
    ),
    Configuration("keys", connections.KEYS, embedder, replace(QUIET, api_key=("secret", "another"))),
    Configuration(
        "aliases",
        connections.ALIASES,
        some_tasks(Task.EMBED, Task.RERANK),
        replace(QUIET, alias=("text-embedding-3-small", "another", "ranker=model/rerank")),
    ),
    Configuration("prefix", connections.PREFIX, embedder, replace(QUIET, url_prefix="/a/b")),
    Configuration(
        "origins", connections.ORIGINS, embedder, replace(QUIET, cors_origin=("https://here.example",))
    ),
    Configuration(
        "limits",
        connections.LIMITED,
        embedder,
        replace(QUIET, max_body_bytes=2048, max_header_bytes=1024),
        MillConfig(
            cores=1,
            queue=QueueConfig(max_queue_texts=4),
            inputs=InputConfig(
                max_inputs=5, max_text_characters=100, max_request_characters=250, max_request_tokens=25
            ),
        ),
    ),
    Configuration(
        "hasty", connections.HASTY, embedder, replace(QUIET, header_timeout_s=0.3, body_timeout_s=0.3)
    ),
    Configuration("loading", connections.LOADING, slow, wait=False, beside=loading),
    Configuration(
        "stopping", connections.STOPPING, embedder, replace(QUIET, lame_duck_s=1000.0), beside=stopping
    ),
    Configuration(
        "faults",
        connections.FAULTY,
        failing,
    ),
    Configuration("dying", connections.REPLACED, faulty(FaultScript(calls={0: Fault.DIE}))),
    Configuration("device-lost", connections.DYING, lost),
    Configuration(
        "stuck",
        connections.STUCK,
        faulty(FaultScript(calls={0: Fault.HANG})),
        config=MillConfig(cores=1, queue=QueueConfig(max_queue_texts=6)),
        beside=occupied,
        has_still_clock=False,
        hangs=True,
    ),
    Configuration(
        "batches",
        (*batches.EACH_PATH, *batches.CASES),
        embedder,
        replace(QUIET, max_batch_lines=8, max_file_bytes=100_000),
        keeps_batches=True,
        runs_at_once=True,
    ),
    Configuration(
        "batches-stuck",
        batches.STUCK,
        faulty(FaultScript(calls={0: Fault.HANG})),
        replace(QUIET, max_open_batches=1),
        beside=releasing,
        keeps_batches=True,
        runs_at_once=True,
        hangs=True,
    ),
)
