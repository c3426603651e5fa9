"""The supervisor of several server processes on one listening socket (`--processes`), and its processes.

How it works. The supervisor opens the socket and forks the processes, which accept connections from it. A
pair of sockets connects the supervisor and each process. The supervisor asks each process every `TICK_S` for
a sign of life, and tells it to stop. The process answers, and tells when it is ready and that it was probed.
When one of them ends, the other reads the end of the stream.

Rules:
1. The first process prepares the models. The others start when it is ready. Until then, its end is the end of
   the server, with the same exit status.
2. A process that ends later is replaced, after a pause that grows while replacements do not last. If a
   replacement ends before it is ready and no other process is ready, the server says so, and ends with its
   exit status.
3. A process that was ready and has not answered for `SILENT_TICKS` is killed (SIGKILL), and replaced like any
   other. It is frozen, and its clients would wait for ever. A process that loads its models may be silent,
   and so may one that a debugger holds. A process whose event loop is blocked ends itself (see `watchdog`).
4. A stop signal is passed on to all processes. If any process answered a readiness probe in the last minute,
   all processes keep the lame-duck time. A second signal ends the processes at once.
5. A stop ends. Processes that are left `STOP_GRACE_S` after the lame-duck and the drain time are killed, and
   `FORCED_S` after a second signal. The supervisor does not wait longer than `KILL_S` for killed ones.
6. Time without an answer and the time of a stop are counted in ticks of the supervisor. While it is stopped
   (SIGSTOP), or the whole machine stands still, nobody is killed.
7. If the supervisor is killed, the processes stop as at SIGTERM. A frozen one is woken for this by SIGCONT.
8. The supervisor has no threads, because it forks.
9. The supervisor tells systemd that the first process is ready, that the server stops, and that it is alive
   itself. The processes tell systemd nothing.
"""

import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

from vecmill.errors import InvalidConfig
from vecmill.hardware.cores import available_cores
from vecmill.hardware.system_calls import is_linux, is_traced, name_process, signal_when_parent_ends
from vecmill.values.environment import environment_variables
from vecmill_server.base.byte_budget import default_budget_bytes
from vecmill_server.base.settings import ServerSettings
from vecmill_server.process import IGNORED_SIGNALS, STOP_SIGNALS, ExitStatus, Silence, say_ignored
from vecmill_server.process.listener import Listener, open_listener
from vecmill_server.process.member import ALIVE, PROBED, QUESTION, READY, Member
from vecmill_server.process.service_manager import ServiceManager, find_manager
from vecmill_server.service.drain import PROBE_MEMORY_S
from vecmill_server.telemetry.siblings import Siblings, open_page_sockets

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
# A process that lived so long is replaced after the shortest pause.
LASTING_S = 60.0
TICK_S = 1.0
# Longer than a process needs to end itself for a fault, and to log its cause.
SILENT_TICKS = 20
# In this time a process answers its last requests and closes its models, or its watchdog ends it.
STOP_GRACE_S = 20.0
FORCED_S = 3.0
# A process in a system call that never returns does not even end at SIGKILL.
KILL_S = 5.0
MIN_BUFFERED_BYTES = 1024 * 1024


Report = Callable[[str], None]


@dataclass(slots=True)
class _Place:
    """The place of one process: the process itself, or the time when its replacement is due."""

    number: int
    due_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    pid: int = 0
    control: socket.socket | None = None
    started_at: float = 0.0
    is_ready: bool = False
    is_asked: bool = False  # and has not answered yet
    silence: Silence = field(default_factory=lambda: Silence(SILENT_TICKS))


def start_processes(settings: ServerSettings, cores: int | None, report: Report) -> Member | int:
    """Start the processes. Return a `Member` in each of them, and the exit status in the supervisor.

    `report` writes a line to the log without a thread. Raises `InvalidConfig` if there are fewer cores than
    processes, the address cannot be used, or the system is not Linux.
    """
    if not is_linux():
        raise InvalidConfig("More than one process needs Linux. Leave out --processes.")
    total = cores or available_cores()
    if settings.processes > total:
        raise InvalidConfig(
            f"{settings.processes} processes need at least as many cores, and this server has {total}. "
            "Lower --processes."
        )
    shares = [divide_limits(settings, total, number) for number in range(settings.processes)]
    manager = find_manager(environment_variables())
    return Supervisor(open_listener(settings), shares, report, longest_stop_s(settings), manager).run()


def longest_stop_s(settings: ServerSettings) -> float:
    """Return the time after which a stop kills the processes that are left, in seconds."""
    return settings.longest_lame_duck_s + settings.drain_s + STOP_GRACE_S


def divide_limits(settings: ServerSettings, cores: int, number: int) -> Mapping[str, int]:
    """Return the options of the process with this number that are a share of those of the whole server."""
    count = settings.processes
    budget = settings.max_buffered_bytes or default_budget_bytes()
    return {
        "result_cache_memory_bytes": settings.cache_memory_bytes // count,
        "cores": cores // count + (number < cores % count),
        "max_connections": math.ceil(settings.max_connections / count),
        "max_buffered_bytes": max(MIN_BUFFERED_BYTES, budget // count),
    }


@dataclass(slots=True)
class Supervisor:
    """The supervisor, described in the docstring of this module.

    `shares` are the options of each process. A stop takes at most `stop_s`.
    """

    listener: Listener
    shares: Sequence[Mapping[str, int]]
    report: Report
    stop_s: float
    manager: ServiceManager
    _places: list[_Place] = field(init=False)
    _pages: list[socket.socket] = field(init=False)
    _selector: selectors.BaseSelector = field(init=False)
    _signals: list[int] = field(default_factory=list)
    _handlers: dict[int, object] = field(default_factory=dict)
    _has_started: bool = False
    _is_stopping: bool = False
    _stop_left_s: float = math.inf
    _tick_at: float = 0.0
    _probed_at: float = -math.inf
    _status: int = ExitStatus.CLEAN

    def __post_init__(self) -> None:
        self._places = [_Place(number) for number in range(len(self.shares))]
        self._pages = open_page_sockets(len(self.shares))
        self._selector = selectors.DefaultSelector()

    def run(self) -> Member | int:
        """Return a `Member` in each process that serves, and the exit status in the supervisor."""
        name_process("vecmill-main")
        with self._handled_signals():
            while True:
                for place in self._due_places():
                    member = self._fork(place)
                    if member is not None:
                        return member
                if self._is_stopping and not any(place.pid for place in self._places):
                    return self._status
                if self._stop_left_s <= -KILL_S:
                    return max(self._status, ExitStatus.LOST)
                self._wait()
                self._tick_if_due()

    def _due_places(self) -> list[_Place]:
        if self._is_stopping:
            return []
        places = self._places if self._has_started else self._places[:1]
        now = time.monotonic()
        return [place for place in places if not place.pid and place.due_at <= now]

    def _fork(self, place: _Place) -> Member | None:
        """Start a process. Return its `Member` in the process, and `None` in the supervisor."""
        ours, theirs = socket.socketpair()
        # A signal that arrives now is handled by the supervisor alone.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            theirs.close()
            place.pid, place.control, place.is_ready, place.is_asked = pid, ours, False, False
            place.started_at = time.monotonic()
            self._selector.register(ours, selectors.EVENT_READ, place)
            return None
        ours.close()
        os.setpgid(0, 0)  # the signals of the terminal go to the supervisor, which passes them on
        signal_when_parent_ends(signal.SIGCONT)
        self._leave()
        name_process(f"vecmill-{place.number}")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        is_first = not self._has_started
        siblings = Siblings(place.number, self._pages)
        return Member(self.shares[place.number], self.listener, theirs, siblings, is_first=is_first)

    def _leave(self) -> None:
        """Release, in a new process, what belongs to the supervisor."""
        self._restore_handlers()
        self._selector.close()
        for place in self._places:
            if place.control is not None:
                place.control.close()

    def _wait(self) -> None:
        """Handle what happens until the next process or the next tick is due."""
        dues = [place.due_at for place in self._places if not place.pid and self._has_started]
        next_at = min([self._tick_at, *(() if self._is_stopping else dues)])
        timeout_s = max(0.0, next_at - time.monotonic())
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.data, _Place):
                self._read(key.data)
            else:
                key.data.recv(64)  # the numbers of signals, which the handler has noted
        while self._signals:
            self._on_signal(self._signals.pop(0))

    def _tick_if_due(self) -> None:
        """Do once per tick what is counted in ticks. Ticks that were missed are not made up for."""
        if time.monotonic() < self._tick_at:
            return
        self.manager.tick()
        for place in self._places:
            if place.control is not None:
                self._watch(place)
        if self._is_stopping:
            was_left_s = self._stop_left_s
            self._stop_left_s -= TICK_S
            if self._stop_left_s <= 0 < was_left_s:
                self._kill_left()
        self._tick_at = time.monotonic() + TICK_S

    def _watch(self, place: _Place) -> None:
        """Kill a process that has been silent for too long, else ask it for a sign of life."""
        assert place.control is not None
        is_excused = not place.is_asked or not place.is_ready or is_traced(place.pid)
        if place.silence.tick(is_alive=is_excused):
            self._kill(place, f"has not answered for {SILENT_TICKS * TICK_S:g} s")
            place.silence = Silence(SILENT_TICKS)
        elif not place.is_asked:
            place.is_asked = True
            with suppress(OSError):  # the process has ended
                place.control.sendall(QUESTION)

    def _kill_left(self) -> None:
        for place in self._places:
            if place.pid:
                self._kill(place, "has not ended in time")

    def _kill(self, place: _Place, reason: str) -> None:
        self.report(f"server process {place.number} (pid {place.pid}) {reason}; it is killed")
        os.kill(place.pid, signal.SIGKILL)

    def _read(self, place: _Place) -> None:
        """Read what a process tells."""
        assert place.control is not None
        try:
            told = place.control.recv(64)
        except OSError:
            told = b""
        if ALIVE in told:
            place.is_asked = False
        if PROBED in told:
            self._probed_at = time.monotonic()
        if READY in told:
            if not self._has_started:
                self.manager.ready()
            place.is_ready = self._has_started = True
        if not told:
            self._on_end(place)

    def _on_end(self, place: _Place) -> None:
        assert place.control is not None
        self._selector.unregister(place.control)
        place.control.close()
        _, ended = os.waitpid(place.pid, 0)
        code = os.waitstatus_to_exitcode(ended)
        was_ready, pid = place.is_ready, place.pid
        place.pid, place.control, place.is_ready = 0, None, False
        status = code if code >= 0 else ExitStatus.LOST
        if self._is_stopping:
            self._status = max(self._status, status)
        elif not was_ready and not any(other.is_ready for other in self._places):
            if self._has_started or code < 0:  # else the process has told why
                self.report(
                    f"server process {place.number} (pid {pid}) ended {_describe_end(code)} before it was "
                    "ready, and no other process is ready; the server ends"
                )
            self._status = status
            self._stop(signal.SIGTERM)
        else:
            self._replace(place, pid, code)

    def _replace(self, place: _Place, pid: int, code: int) -> None:
        """Plan the replacement of a process that has ended."""
        now = time.monotonic()
        if now - place.started_at >= LASTING_S:
            place.pause_s = FIRST_PAUSE_S
        place.due_at = now + place.pause_s
        self.report(
            f"server process {place.number} (pid {pid}) ended {_describe_end(code)}; "
            f"another process takes its place in {place.pause_s:g} s"
        )
        place.pause_s = min(LONGEST_PAUSE_S, 2 * place.pause_s)

    def _on_signal(self, number: int) -> None:
        if number in IGNORED_SIGNALS:
            self.report(say_ignored(number))
        elif not self._is_stopping:
            self._stop(number)
        elif number != signal.SIGHUP:  # a terminal that closes sends it twice
            self._stop_left_s = min(self._stop_left_s, FORCED_S)
            for place in self._places:
                if place.pid:
                    os.kill(place.pid, number)

    def _stop(self, number: int) -> None:
        """Tell every process to stop as at the signal `number`."""
        self._is_stopping, self._stop_left_s = True, self.stop_s
        self.manager.stopping()
        # The processes have copies. The last one that closes its copy ends the listening.
        self.listener.socket.close()
        was_probed = time.monotonic() - self._probed_at <= PROBE_MEMORY_S
        message = (PROBED if was_probed else b"") + bytes([number])
        for place in self._places:
            if place.control is not None:
                with suppress(OSError):  # the process has ended
                    place.control.sendall(message)

    @contextmanager
    def _handled_signals(self) -> Iterator[None]:
        """Note the signals to stop and those to ignore. Under nohup, SIGHUP stays ignored."""
        wakes, woken = socket.socketpair()
        for end in (wakes, woken):
            end.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, woken)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, *IGNORED_SIGNALS):
            handler = signal.getsignal(number)
            if number is not signal.SIGHUP or handler is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._note_signal)
        try:
            yield
        finally:
            self._restore_handlers()
            wakes.close()
            woken.close()

    def _restore_handlers(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)


def _describe_end(code: int) -> str:
    return f"with status {code}" if code >= 0 else f"by signal {-code}"
