"""The watchdog counts its own ticks, excuses what is known to take long, and ends what cannot answer."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from vecmill.mill import Mill
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.catalog import ModelState, ServedModel
from vecmill_server.process import ExitStatus, Silence, watchdog
from vecmill_server.process.watchdog import PATIENCE_TICKS, Watchdog, is_debugged, list_stacks
from vecmill_server.service.service import Service, assemble_service
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics


class StatedModel(ServedModel):
    """A model in a state that the test sets."""

    __slots__ = ("stated",)

    def __init__(self, name: str, stated: ModelState = ModelState.READY) -> None:
        super().__init__(name, Mill())
        self.stated = stated

    @property
    def state(self) -> ModelState:
        return self.stated


class Ended(Exception):
    """The process would have ended."""


def end(status: int) -> None:
    """Stand in for `os._exit`."""
    raise Ended(status)


@pytest.fixture
def models() -> list[StatedModel]:
    """Two models that are ready."""
    return [StatedModel("a"), StatedModel("b")]


@pytest.fixture
def service(models: list[StatedModel]) -> Service:
    """Their service."""
    return assemble_service(list(models), ServerSettings(), ServerMetrics())


def watch(service: Service, stop: Callable[[], None] = lambda: None) -> Watchdog:
    return Watchdog(service, stop, lambda: ExitStatus.CLEAN, end)


def test_silence_is_counted_in_ticks() -> None:
    silence = Silence(3)
    signs = (False, False, True, False, False, False)
    assert [silence.tick(is_alive=alive) for alive in signs] == [False] * 5 + [True]


async def test_a_loop_that_answers_is_left_alone(service: Service) -> None:
    found = watch(service)
    for _ in range(3 * PATIENCE_TICKS):
        found.tick()
        await asyncio.sleep(0)


@pytest.mark.promise("lost-lane-noticed")
async def test_a_blocked_loop_ends_the_process_with_its_stacks(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    found = watch(service)
    for _ in range(PATIENCE_TICKS):
        found.tick()  # and the loop never runs
    with pytest.raises(Ended, match="70"):
        found.tick()
    assert "blocked" in caplog.text
    assert "in test_a_blocked_loop_ends_the_process_with_its_stacks" in caplog.text


async def test_a_blocked_loop_ends_the_process_even_if_no_thread_can_be_started(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    found = watch(service)
    for _ in range(PATIENCE_TICKS):
        found.tick()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Ended, match="70"):
        found.tick()


async def test_loading_is_no_silence(service: Service, models: list[StatedModel]) -> None:
    models[1].stated = ModelState.LOADING
    found = watch(service)
    for _ in range(3 * PATIENCE_TICKS):
        found.tick()


async def test_a_debugger_is_no_silence(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "is_debugged", lambda _thread: True)
    found = watch(service)
    for _ in range(3 * PATIENCE_TICKS):
        found.tick()


@pytest.mark.parametrize(
    ("states", "strict", "is_lost"),
    [
        ((ModelState.LOST, ModelState.READY), False, False),
        ((ModelState.LOST, ModelState.DEGRADED), False, False),
        ((ModelState.LOST, ModelState.LOADING), False, False),
        ((ModelState.LOST, ModelState.READY), True, True),
        ((ModelState.LOST, ModelState.FAILED), False, True),
        ((ModelState.LOST, ModelState.LOST), False, True),
        ((ModelState.FAILED, ModelState.READY), False, False),
    ],
)
async def test_the_server_stops_when_no_model_is_left(
    service: Service,
    models: list[StatedModel],
    states: tuple[ModelState, ModelState],
    strict: bool,
    is_lost: bool,
) -> None:
    models[0].stated, models[1].stated = states
    stopped = []
    found = watch(replace(service, settings=ServerSettings(strict=strict)), lambda: stopped.append(True))
    for _ in range(3):
        found.tick()
        await asyncio.sleep(0)
    assert stopped == [True] * is_lost


async def test_a_stop_that_does_not_end_is_ended_with_its_status(service: Service) -> None:
    service.drain.finish()
    found = watch(service)
    for _ in range(PATIENCE_TICKS - 1):
        found.tick()
        await asyncio.sleep(0)
    with pytest.raises(Ended, match="0"):
        found.tick()


@pytest.fixture
def waiting_thread(request: pytest.FixtureRequest) -> Iterator[int]:
    """The id of a thread that waits in a function of a module with the name that the test gives."""
    names: dict[str, object] = {"__name__": request.param}
    exec("def wait(begun, released):\n    begun.set()\n    released.wait()\n", names)
    wait = names["wait"]
    assert callable(wait)
    begun, released = threading.Event(), threading.Event()
    thread = threading.Thread(target=wait, args=(begun, released), name="the waiting one")
    thread.start()
    begun.wait()
    assert thread.ident is not None
    yield thread.ident
    released.set()
    thread.join()


@pytest.mark.parametrize(
    ("waiting_thread", "expected"),
    [("bdb", True), ("pydevd.sub", True), ("pdbx", False)],
    indirect=["waiting_thread"],
)
def test_a_debugger_is_known_by_its_frames(waiting_thread: int, expected: bool) -> None:
    assert is_debugged(waiting_thread) is expected


@pytest.mark.parametrize("waiting_thread", ["any"], indirect=True)
@pytest.mark.usefixtures("waiting_thread")
def test_stacks_name_threads_and_functions() -> None:
    stacks = "\n".join(list_stacks())
    assert "Thread the waiting one:" in stacks
    assert "in wait" in stacks
    assert "in test_stacks_name_threads_and_functions" in stacks
