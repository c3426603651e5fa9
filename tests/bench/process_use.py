"""The memory and the processor time of a process, from Linux' `/proc`."""

import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def memory_mib(pid: int | str) -> tuple[float, float]:
    """Resident and proportional memory of a process, in MiB. RSS counts pages mapped twice twice."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
    sizes = dict(re.findall(r"^(Rss|Pss): +(\d+) kB", text, flags=re.MULTILINE))
    return int(sizes["Rss"]) / 1024, int(sizes["Pss"]) / 1024


def proportional_mb(pid: int | str) -> float:
    """Proportional memory of a process in MB, which counts shared pages once, as a container does."""
    return memory_mib(pid)[1] * 2**20 / 1e6


def status_mb(pid: int | str, field: str) -> float:
    """A field of the status of a process in MB: `VmRSS`, its resident memory, or `VmHWM`, the peak of it."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024 / 1e6


def processor_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def thread_s(pid: int, thread: int | str) -> float:
    """Processor seconds of a thread by the scheduler; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text("ascii").split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


@dataclass(frozen=True, slots=True)
class Times:
    """Processor seconds of each process of a server: of its event loop, and of its other threads."""

    loops: tuple[float, ...]
    others: tuple[float, ...]

    def since(self, earlier: "Times") -> "Times":
        """Return the difference."""
        return Times(
            tuple(now - then for now, then in zip(self.loops, earlier.loops, strict=True)),
            tuple(now - then for now, then in zip(self.others, earlier.others, strict=True)),
        )


def read_times(pids: Sequence[int]) -> Times:
    """Return the processor times of the processes until now. The event loop is the main thread."""
    loops, others = [], []
    for pid in pids:
        threads = os.listdir(f"/proc/{pid}/task")
        loops.append(thread_s(pid, pid))
        others.append(sum(thread_s(pid, thread) for thread in threads if thread != str(pid)))
    return Times(tuple(loops), tuple(others))


class MemoryPeak:
    """The highest resident memory of a process, in MB, while the block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.before_mb = self.peak_mb = 0.0

    def __enter__(self) -> "MemoryPeak":
        self.before_mb = self.peak_mb = status_mb(self._pid, "VmRSS")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self.peak_mb = max(self.peak_mb, status_mb(self._pid, "VmRSS"))
