"""The real server, uvicorn and uvloop on a loopback socket, in a thread of the test's process."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import httpx

from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.base import Engine
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.cores import available_cores
from vecmill.mill import Mill
from vecmill.models import ModelDescription, locate_model
from vecmill.values.batch import TokenSequence
from vecmill.values.clock import Clock, monotonic
from vecmill.values.engine_plan import CostModel
from vecmill_server.app.routes.prometheus import PAGE_AGE_S
from vecmill_server.base.settings import ServerSettings
from vecmill_server.base.time_limit import limit_time
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.process.listener import Listener, bind_listener
from vecmill_server.process.runner import Runner
from vecmill_server.service.service import Service, assemble_service
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics
from vecmill_server.telemetry.tracing.trace import Tracer

MODEL = "all-MiniLM-L6-v2"
DIM = 384
PATIENCE_S = 20.0

QUIET = ServerSettings(lame_duck_s=0.0, drain_s=5.0, access_log=False)


class SlowToLoad(FakeEngine):
    """Warms up once `may_load` is set."""

    def __init__(self) -> None:
        super().__init__(dim=DIM)
        self.may_load = threading.Event()

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        self.may_load.wait()
        return super().warm_up(texts)


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that takes requests. `engine` hangs and fails as its script says."""

    port: int
    service: Service
    engine: FakeEngine
    runner: Runner
    client: httpx.Client = field(repr=False)

    def connect(self, timeout_s: float = PATIENCE_S) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)

    def exchange(self, request: bytes) -> bytes:
        """What comes back, until the server closes, for bytes sent at once."""
        with self.connect() as connection:
            send_all(connection, request)
            return receive_all(connection)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; 0 if there is none yet."""
        families = self.service.metrics.copy().families()
        samples = (sample for family in families for sample in family.samples)
        return next((found.value for found in samples if (found.name, found.labels) == (name, labels)), 0.0)

    def is_well(self) -> bool:
        """Whether an ordinary request is still answered as it should be."""
        answer = self.client.post("/v1/embeddings", json={"input": "are you well?"})
        return answer.status_code == 200 and len(answer.json()["data"]) == 1


@cache
def embedded_model() -> ModelDescription:
    """The description of the embedded model, whose files are read once."""
    return describe_model(locate_model())


@contextmanager
def serve_in_thread(
    settings: ServerSettings = QUIET,
    *,
    config: MillConfig | None = None,
    engine: FakeEngine | None = None,
    models: Sequence[ModelDescription] = (),
    tracer: Tracer | None = None,
    page_clock: Clock | None = None,
    wait: bool = True,
) -> Iterator[HttpServer]:
    """Serve fake engines until the block ends: of `models`, or of the embedded model.

    `engine` is the first one's. `page_clock` is that of `build_service`.
    `wait` returns when the models are loaded, else when the port is open.
    """
    models = models or [embedded_model()]
    engines = [fake_engine(description) for description in models]
    engines[0] = engine = engine or engines[0]
    engines_of = list(zip(models, engines, strict=True))
    service = build_service(settings, engines_of, config=config, tracer=tracer, page_clock=page_clock)

    def release() -> None:
        for one in engines:
            one.released.set()

    with run_in_thread(service, wait=wait, before_stop=release) as (port, runner):
        base_url = f"http://127.0.0.1:{port}{settings.url_prefix}"
        with httpx.Client(base_url=base_url, timeout=PATIENCE_S) as client:
            yield HttpServer(port, service, engine, runner, client)


def build_service(
    settings: ServerSettings,
    models: Sequence[tuple[ModelDescription, Engine | None]],
    *,
    config: MillConfig | None = None,
    clock: Clock = monotonic,
    wall_clock: Callable[[], float] = time.time,
    tracer: Tracer | None = None,
    page_clock: Clock | None = None,
) -> Service:
    """A service of models, each with its engine; without one, with the engine that `config` names.

    Unless `page_clock` is given, no page of metrics is young enough to be given twice.
    """
    config = limit_time(config or MillConfig())
    metrics = ServerMetrics()
    budget = CoreBudget(config.cores or available_cores(), clock=clock)
    served = [
        ServedModel(
            found.name,
            Mill(
                found,
                config,
                observer=metrics.observe_model(found.name, None if tracer is None else tracer.end_batch),
                engine=engine,
                budget=budget,
                clock=clock,
            ),
        )
        for found, engine in models
    ]
    page_clock = page_clock or striding_clock()
    return replace(
        assemble_service(served, settings, metrics, tracer), wall_clock=wall_clock, page_clock=page_clock
    )


def striding_clock() -> Clock:
    """A clock by which the longest age of a page passes between any two readings."""
    return partial(next, itertools.count(0.0, PAGE_AGE_S))


@contextmanager
def run_in_thread(
    service: Service,
    *,
    wait: bool = True,
    before_stop: Callable[[], None] = lambda: None,
    listener: Listener | None = None,
) -> Iterator[tuple[int, Runner]]:
    """Run `service` on a free port, which is given, or on `listener`, until the block ends.

    `wait` begins the block when the models are loaded, else when the port is open.
    """
    listener = listener or bind_listener("127.0.0.1", 0)
    port = listener.address.port
    ready = threading.Event()
    runner = Runner(service, listener, ready.set)
    thread = threading.Thread(target=runner.run, name="http-server")
    thread.start()
    try:
        assert not wait or ready.wait(PATIENCE_S), "the server did not become ready"
        yield port, runner
    finally:
        before_stop()
        service.drain.stop(time.monotonic(), at_once=True)
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server did not stop"


def fake_engine(description: ModelDescription, faults: FaultScript | None = None) -> FakeEngine:
    """An engine of the model's shape that hashes."""
    return FakeEngine(
        dim=description.dim,
        max_tokens=description.max_tokens,
        output_shape=description.output_shape,
        faults=faults,
    )


def hanging_engine(*calls: int) -> FakeEngine:
    """An engine of one lane whose calls of these numbers, else its first one, hang until it is released."""
    return FakeEngine(
        dim=DIM, lane_widths=(1,), faults=FaultScript(calls=dict.fromkeys(calls or (0,), Fault.HANG))
    )


def url(client: httpx.Client, path: str) -> str:
    """The path as it is: joined by httpx, `//a` would mean a host."""
    return f"{str(client.base_url).rstrip('/')}{path}"


def post(client: httpx.Client, path: str, *, status: int = 200, headers: Any = None, **body: Any) -> Any:
    """The document that answers a body; fails unless the answer has this status."""
    answer = client.post(url(client, path), json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send, though the other side may have had enough."""
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)


def receive_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    chunks = []
    while chunk := connection.recv(65_536):
        chunks.append(chunk)
    return b"".join(chunks)


def wait_until(condition: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
    """Return as soon as `condition()` is true; fail if it never is."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.002)


def occupy(server: HttpServer, texts: int, *, timeout_s: float = PATIENCE_S) -> threading.Thread:
    """Send a request of so many texts and return when it has been admitted.

    It waits so long for its answer.
    """
    admitted = server.metric("vecmill_texts_admitted_total", model=MODEL)
    body = {"input": [f"text {admitted} {number}" for number in range(texts)]}
    given = {"json": body, "timeout": timeout_s}
    thread = threading.Thread(target=server.client.post, args=("/embeddings",), kwargs=given)
    thread.start()
    wait_until(lambda: server.metric("vecmill_texts_admitted_total", model=MODEL) == admitted + texts)
    return thread
