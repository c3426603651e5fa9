"""Thirty requests to the application, without a socket, in which any one step can be made to fail.

`Stage` holds the application. A `Trip` counts the steps of one kind and fails the one with its number, so a
test can let the first step fail, then the second, until a run has no step with that number.
"""

import asyncio
import json
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from support.http_server import DIM, MODEL, QUIET, build_service, embedded_model
from support.queue_rules import check_queue
from vecmill.batching.dispatcher import Dispatcher
from vecmill.config import BatchConfig, MillConfig
from vecmill.engines.fake import FakeEngine
from vecmill.mill import Mill
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill_server.app import create_app
from vecmill_server.service.service import Service

PATIENCE_S = 10.0
WAVE = 3  # requests that run at once


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. Its body is sent in `parts` messages."""

    path: str
    body: Any = None
    method: str = "POST"
    parts: int = 1
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(slots=True)
class Answer:
    """The response to one request, without a `status` if there was none. `error` ended the request's task."""

    status: int | None = None
    body: bytes = b""
    is_whole: bool = False
    error: BaseException | None = None

    @property
    def outcome(self) -> tuple[int | None, str]:
        """The status, and the part of the body that does not change from one run to the next."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return self.status, ""
        return self.status, json.dumps(value.get("data") if isinstance(value, dict) else value)


LONG = "a long text, tokenised in a thread. " * 60


def embeddings(*texts: str, parts: int = 1, **fields: Any) -> Ask:
    """A request for embeddings."""
    return Ask("/v1/embeddings", {"input": list(texts), **fields}, parts=parts)


def make_waves(eight_bits: str = "int8") -> list[list[Ask]]:
    """Return thirty requests, in waves of three that run at once.

    `eight_bits` is the data type of one of them. The first int8 request of a model has the ranges measured.
    """
    mixed = [
        embeddings("one"),
        embeddings("two", "three"),
        embeddings(*(f"text {number}" for number in range(20))),
        embeddings("shared", "own 1"),
        embeddings("shared", "own 2", encoding_format="base64"),
        embeddings("shared", "shared"),
        embeddings(LONG, parts=3),
        embeddings("in parts", parts=4),
        Ask("/rerank", {"query": "which?", "documents": ["this", "that", "the other"]}),
        Ask("/embed", {"inputs": ["as TEI", "does it"]}),
        Ask("/api/embed", {"model": MODEL, "input": "as Ollama does"}),
        embeddings("eight bits", output_dtype=eight_bits),
        Ask("/v1/embeddings", {"input": 7}),
        Ask("/v1/embeddings", {"input": "x", "model": "unknown/model"}),
        Ask("/nowhere", {}),
    ]
    reads = [Ask(path, method="GET") for path in ("/livez", "/readyz", "/metrics", "/v1/models", "/nowhere")]
    asks = [*mixed, *reads, *(embeddings(f"and {number}", "shared") for number in range(10))]
    assert len(asks) == 30
    return [asks[first : first + WAVE] for first in range(0, 30, WAVE)]


class Planted(Exception):
    """A failure that the test planted."""


@dataclass(slots=True)
class Trip:
    """A counter of steps that fails the step `number`. `is_due` is true for that step, once."""

    number: int = 0
    steps: int = 0

    @property
    def was_reached(self) -> bool:
        """True if the step has happened."""
        return 0 < self.number <= self.steps

    def is_due(self) -> bool:
        """Count a step, and return True if it must fail."""
        self.steps += 1
        return self.steps == self.number


class TrippingEngine(FakeEngine):
    """The fake engine; the call of `trip` is spoilt by `spoil`. `spoilt_texts` is its number of texts."""

    def __init__(self) -> None:
        super().__init__(dim=DIM, lane_widths=(1,))
        self.trip = Trip()
        self.spoilt_texts = 0
        self.spoil: Callable[[Embeddings], Embeddings] = lambda embeddings: embeddings

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """As the fake engine, but for one call."""
        is_due = self.trip.is_due()
        embeddings = super().run(batch, width=width)
        if is_due:
            self.spoilt_texts = len(batch)
        return self.spoil(embeddings) if is_due else embeddings


@dataclass(slots=True)
class Stage:
    """The application of a service with one model and one lane."""

    app: ASGIApp
    service: Service
    engine: TrippingEngine
    mill: Mill
    sending: Trip = field(default_factory=Trip)
    receiving: Trip = field(default_factory=Trip)
    is_leaving: bool = False  # the failing `receive` says that the client has gone, instead of raising

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of the model."""
        assert self.mill._loaded is not None
        return self.mill._loaded.dispatcher

    async def ask(self, ask: Ask, *, cancel: Trip | None = None) -> Answer:
        """Send one request. `cancel` cancels the task of the request at one of its awaits."""
        answer = Answer()
        try:
            async with asyncio.timeout(PATIENCE_S):
                calling = asyncio.create_task(self._call(ask, answer, cancel or Trip()))
                await asyncio.wait([calling])
        except TimeoutError:
            raise AssertionError(f"{ask} was never answered") from None
        answer.error = None if calling.cancelled() else calling.exception()
        return answer

    async def play(self, waves: Sequence[Sequence[Ask]]) -> list[Answer]:
        """Send all requests, wave after wave."""
        answers: list[Answer] = []
        for wave in waves:
            answers += await asyncio.gather(*map(self.ask, wave))
        return answers

    async def assert_at_rest(self) -> None:
        """Assert that nothing is left of earlier requests, and that the server still answers."""
        # The ranges of 8-bit embeddings are measured for all requests, whatever becomes of the first one.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, pending = await asyncio.wait(others, timeout=PATIENCE_S)
            assert not pending
        dispatcher, loaded = self.dispatcher, self.mill._loaded
        assert loaded is not None
        counts = dispatcher.counts_snapshot()
        ended = counts.done + counts.failed + counts.expired + counts.cancelled
        assert counts.open == 0
        assert counts.admitted == ended
        with dispatcher._lock:
            check_queue(dispatcher.scheduler.queue)
        assert dispatcher._futures == {}
        assert not loaded.texts._waiting_characters
        self.sending, self.receiving, self.engine.trip = Trip(), Trip(), Trip()
        answer = await self.ask(embeddings("are you well?"))
        assert answer.status == 200

    async def _call(self, ask: Ask, answer: Answer, cancel: Trip) -> None:
        scope, messages = _scope(ask), _messages(ask)

        async def receive() -> Message:
            if self.receiving.is_due():
                if not self.is_leaving:
                    raise Planted("receive")
                messages[:] = [{"type": "http.disconnect"}]
            await asyncio.sleep(0)  # a request can be cancelled wherever a connection may make it wait
            if not messages:
                await asyncio.Event().wait()  # the client stays
            return messages.pop(0)

        async def send(message: Message) -> None:
            if self.sending.is_due():
                raise Planted("send")
            if message["type"] == "http.response.start":
                assert answer.status is None, "two responses to one request"
                answer.status = message["status"]
            else:
                assert not answer.is_whole, "more after the end of the response"
                answer.body += message.get("body", b"")
                answer.is_whole = not message.get("more_body", False)
            await asyncio.sleep(0)

        await _cancel_at(self._run(scope, receive, send), cancel)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@types.coroutine
def _cancel_at(coroutine: Coroutine[Any, Any, None], trip: Trip) -> Generator[Any, Any, None]:
    """Run a coroutine, and cancel its task at the await that `trip` names."""
    steps = coroutine.__await__()
    error: BaseException | None = None
    while True:
        try:
            waited = next(steps) if error is None else steps.throw(error)
        except StopIteration:
            return
        if trip.is_due():
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        try:
            yield waited
        except BaseException as raised:
            error = raised
        else:
            error = None


def _scope(ask: Ask) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": ask.method,
        "scheme": "http",
        "path": ask.path,
        "raw_path": ask.path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"x"), (b"content-type", b"application/json"), *ask.headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }


def _messages(ask: Ask) -> list[Message]:
    body = b"" if ask.body is None else json.dumps(ask.body).encode()
    size = -(-len(body) // ask.parts) or 1
    chunks = [body[start : start + size] for start in range(0, len(body), size)] or [b""]
    return [
        {"type": "http.request", "body": chunk, "more_body": place < len(chunks) - 1}
        for place, chunk in enumerate(chunks)
    ]


@asynccontextmanager
async def stage(*, hang_s: float = 30.0) -> AsyncIterator[Stage]:
    """A stage with a started model. An engine call hangs after `hang_s`."""
    engine = TrippingEngine()
    config = MillConfig(cores=1, hang_s=hang_s, batch=BatchConfig(max_batch_tokens=64))
    service = build_service(QUIET, [(embedded_model(), engine)], config=config)
    mill = next(iter(service.catalog)).mill
    await mill.start()
    try:
        yield Stage(create_app(service), service, engine, mill)
    finally:
        await mill.close()
