"""The application loads and closes its models by the ASGI lifespan, where another ASGI server runs it."""

import asyncio
from typing import Any

import pytest

from support.http_server import fake_engine
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.errors import CorruptModel
from vecmill.mill import Mill, MillState
from vecmill.models import ModelDescription, locate_model
from vecmill_server.app import create_app
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.process.loading import REQUEST_S, LifespanApp, count_processes
from vecmill_server.service.service import Service, assemble_service
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics


def build_service(mill: Mill) -> Service:
    return assemble_service([ServedModel("the-model", mill)], ServerSettings(), ServerMetrics())


async def test_the_models_are_loaded_at_startup_and_closed_at_shutdown() -> None:
    description = describe_model(locate_model())
    engine: FakeEngine = fake_engine(description)
    service = build_service(Mill(description, engine=engine))
    (model,) = service.catalog
    sent: list[dict[str, Any]] = []
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    states: list[MillState] = []

    async def send(message: Any) -> None:
        sent.append(message)
        states.append(model.mill.state)
        if message["type"] == "lifespan.startup.complete":
            events.put_nowait({"type": "lifespan.shutdown"})

    events.put_nowait({"type": "lifespan.startup"})
    await LifespanApp(create_app(service), service)({"type": "lifespan"}, events.get, send)
    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert states == [MillState.READY, MillState.CLOSED]


async def test_a_model_that_cannot_be_loaded_fails_the_startup() -> None:
    message = "The weights are damaged."

    def describe() -> ModelDescription:
        raise CorruptModel(message)

    service = build_service(Mill(describe))
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await LifespanApp(create_app(service), service)({"type": "lifespan"}, receive, send)
    assert sent == [{"type": "lifespan.startup.failed", "message": message}]


@pytest.mark.parametrize(
    ("cores", "text_s", "processes"),
    [
        (2, 6e-3, 1),  # all-MiniLM-L6-v2: one event loop keeps 9 cores busy
        (9, 6e-3, 1),
        (16, 6e-3, 2),
        (64, 6e-3, 7),
        (64, 1.0, 1),
        (4, 0.0, 4),
    ],
)
def test_cores_need_as_many_processes_as_event_loops_keep_them_busy(
    cores: int, text_s: float, processes: int
) -> None:
    assert count_processes(cores, text_s) == processes
    assert processes * (1 + text_s / REQUEST_S) >= 0.75 * cores
