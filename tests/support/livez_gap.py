"""The longest gap between answers of `/livez`: of a server under test, and of an idle process beside it.

The idle process is a control. On a busy machine every process waits for a processor at times; a gap that the
control has too is not the server's. The probes are processes of their own: in the process of the test, which
makes and sends the hostile input, both would wait for that process, and the gaps of the server would hide.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from subprocess import PIPE, Popen

from support import livez_probe
from support.livez_probe import BEGUN, PATIENCE_S


@dataclass(slots=True)
class LivezGap:
    """The longest gaps in seconds, known after the context. 0 before.

    `computed_s` is that of the server with only as much of each gap as one of its threads computed in it: a
    thread that keeps the event loop waiting, with the interpreter lock or as the loop itself, computes.
    """

    server_s: float = 0.0
    control_s: float = 0.0
    computed_s: float = 0.0

    @property
    def beyond_control_s(self) -> float:
        """How much longer the server was silent than the control."""
        return self.server_s - self.control_s

    @property
    def own_s(self) -> float:
        """How much longer than the control the server was silent by itself, on a machine with other work.

        A process that computes waits longer for a processor than the control, which does not.
        """
        return min(self.beyond_control_s, self.computed_s)


@contextmanager
def livez_gap(port: int, pid: int | None = None) -> Iterator[LivezGap]:
    """Measure the longest gaps of the server at `port`, and of a control process, until the block ends.

    `pid` is the server's process, on Linux; without it, all of a gap counts as computed. Raises
    `ConnectionError` if a probe got no answer, or another one than 200.
    """
    found = LivezGap()
    with ExitStack() as stack:
        _, control_port = stack.enter_context(idle_process())
        own = () if pid is None else (str(pid),)
        asked = ((str(port), *own), (str(control_port),))
        probes = [stack.enter_context(_running("probe", *each)) for each in asked]
        for probe in probes:
            assert probe.stdout is not None
            if probe.stdout.readline() != BEGUN:
                raise ConnectionError("`/livez` was not answered")
        yield found
        (found.server_s, found.computed_s), (found.control_s, _) = map(_end, probes)


@contextmanager
def idle_process() -> Iterator[tuple[Popen[str], int]]:
    """A process that does nothing but answer, and its port."""
    with _running("serve") as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


@contextmanager
def _running(*arguments: str) -> Iterator[Popen[str]]:
    # Isolated, and without the packages of the environment, a process starts three times as fast.
    command = [sys.executable, "-I", "-S", livez_probe.__file__, *arguments]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _end(probe: Popen[str]) -> tuple[float, float]:
    """Stop a probe after the answer that is under way, and return the longest gaps."""
    told, _ = probe.communicate(timeout=PATIENCE_S + 10.0)
    if not told:
        raise ConnectionError("`/livez` was not answered")
    longest_s, computed_s = map(float, told.split())
    return longest_s, computed_s
