"""The watchdog: a thread that ends a process which cannot answer any more, so that a supervisor restarts it.

How it works. The thread sleeps for `TICK_S`, and counts its own ticks. At each tick it asks the event loop
for a sign of life. There are four faults:

Blocked  The event loop has given no sign of life for `PATIENCE_TICKS` ticks.
Frozen   The event loop computes without letting any other Python code run, for example in a regular
         expression. Then this thread does not run either. A timer of the kernel counts the processor time of
         the loop's thread, and this thread sets the timer back at each tick. When the timer expires, the
         signal `FROZEN_SIGNAL` writes all stacks to standard error and ends the process.
Lost     No model can answer any more, because every worker of the last model is lost. Waiting requests are
         answered with 503, and the process stops.
Late     The server stopped `PATIENCE_TICKS` ticks ago, but a thread keeps the process alive.

Rules:
1. Silence is counted in ticks of this thread, not in seconds of a clock. A process that is stopped (SIGSTOP,
   a paused virtual machine, a sleeping laptop) does not tick either, and continues afterwards.
2. While a model loads, or a debugger holds the event loop, nothing counts as silence.
3. A fault is logged with the stacks of all threads. Logging may hang too, so it gets `REPORT_S`, and then the
   process ends.
"""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from vecmill.hardware.system_calls import ThreadTimer, is_traced
from vecmill_server.catalog.catalog import ModelState
from vecmill_server.process import ExitStatus, Silence
from vecmill_server.service.drain import Phase
from vecmill_server.service.service import Service

logger = logging.getLogger(__name__)

TICK_S = 0.5
PATIENCE_TICKS = 20
REPORT_S = 2.0

# The processor time that the event loop may use between two ticks.
FROZEN_S = 10.0
FROZEN_SIGNAL = signal.SIGVTALRM
STANDARD_ERROR = 2

# The names of modules whose frames mean that a debugger holds the thread.
_DEBUGGERS = ("bdb", "pdb", "pydevd", "_pydevd_bundle", "debugpy")


class Watchdog:
    """The watchdog of one server, described in the docstring of this module. Create it on the event loop.

    `stop` is called on the event loop to stop a server that cannot answer. `status` returns the exit status
    of a server that has stopped.
    """

    def __init__(
        self,
        service: Service,
        stop: Callable[[], None],
        status: Callable[[], ExitStatus],
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._service = service
        self._stop = stop
        self._status = status
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._sent = self._heard = 0
        self._silence, self._lateness = Silence(PATIENCE_TICKS), Silence(PATIENCE_TICKS)
        self._is_stopping = False

    def start(self) -> None:
        """Start the thread."""
        timer = make_freeze_timer(self._loop_thread)
        threading.Thread(target=self._run, args=(timer,), name="vecmill-watchdog", daemon=True).start()

    def tick(self) -> None:
        """Look for a fault."""
        is_heard = self._listen()
        if self._silence.tick(is_alive=is_heard or self._is_excused()):
            self._report("The event loop is blocked.", ExitStatus.FAULT)
            self._end(ExitStatus.FAULT)
        if not self._is_stopping and self._is_lost():
            self._is_stopping = True
            self._report("The workers of the models are lost.", ExitStatus.FAULT)
            self._loop.call_soon_threadsafe(self._stop)
        is_over = self._is_stopping or self._service.drain.phase is Phase.STOPPED
        if self._lateness.tick(is_alive=not is_over):
            status = ExitStatus.FAULT if self._is_stopping else self._status()
            self._report("The server has stopped, but a thread keeps the process alive.", status)
            self._end(status)

    def _run(self, timer: ThreadTimer) -> None:
        while True:
            timer.set_back(FROZEN_S)
            time.sleep(TICK_S)
            self.tick()

    def _listen(self) -> bool:
        """Return True if the event loop has answered, and ask again."""
        if self._heard < self._sent:
            return False
        self._sent += 1
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed: the process ends
            self._heard = self._sent
        return True

    def _answer(self) -> None:
        self._heard += 1

    def _is_excused(self) -> bool:
        return self._service.catalog.has_running_load or is_debugged(self._loop_thread)

    def _is_lost(self) -> bool:
        service = self._service
        states = {model.state for model in service.catalog}
        if not service.drain.is_serving or ModelState.LOST not in states:
            return False
        return service.settings.strict or states <= {ModelState.LOST, ModelState.FAILED}

    def _report(self, sentence: str, status: ExitStatus) -> None:
        stacks = "\n".join(list_stacks())

        def report() -> None:
            logger.critical("%s The process ends with status %d.\n%s", sentence, status, stacks)
            for handler in logging.getLogger().handlers:
                handler.flush()

        reporting = threading.Thread(target=report, name="vecmill-report", daemon=True)
        try:
            reporting.start()
        except RuntimeError:  # the system allows no more threads, and the end must not fail for this reason
            return
        reporting.join(REPORT_S)


def make_freeze_timer(thread: int) -> ThreadTimer:
    """Return the timer that ends a frozen process; without effect where the system has no such timer."""
    timer = ThreadTimer(thread, FROZEN_SIGNAL)
    if timer.is_set_up:
        # Chained to the default action, which ends the process.
        faulthandler.register(FROZEN_SIGNAL, file=STANDARD_ERROR, all_threads=True, chain=True)
    return timer


def is_debugged(thread: int) -> bool:
    """Return True if a debugger is attached to this process, or holds the thread."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _DEBUGGERS:
            return True
        frame = frame.f_back
    return is_traced()


def list_stacks() -> Iterator[str]:
    """Return the stacks of all threads, as lines, the innermost call last. No file is read."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, innermost in sys._current_frames().items():
        yield f"Thread {names.get(ident, ident)}:"
        lines = []
        frame: FrameType | None = innermost
        while frame is not None:
            code = frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}')
            frame = frame.f_back
        yield from reversed(lines)
