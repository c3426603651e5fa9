"""The calls that only Linux has, and what stands in for each on other systems.

No other module asks which system this is or calls what another system lacks. Each function tells its
substitute. Windows lacks most of them, and is refused when the package is imported. What is read from `/proc`
and `/sys` needs no substitute: the files are not there, and the reader returns what its docstring says.
docs/engines.md lists both for users.
"""

import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

_PROC = Path("/proc")

# The number of this name in glibc, which Python's `os.sysconf_names` lacks.
_SC_LEVEL2_CACHE_SIZE = 191

_PR_SET_PDEATHSIG = 1  # prctl(2): the signal that a process gets when its parent ends
_SO_ATTACH_FILTER = 26  # socket(7)
_CREDENTIALS = struct.Struct("3i")  # unix(7): the process, user and group of a peer


def is_linux() -> bool:
    """Return whether this system is Linux."""
    return sys.platform == "linux"


def find_c_function(name: str) -> Callable[..., Any] | None:
    """Return a function of the C library by its name; `None` if the library lacks it or is not Linux's."""
    return getattr(ctypes.CDLL(None), name, None) if is_linux() else None


# ---------------------------------------------------------------- processors


def usable_processors() -> frozenset[int]:
    """Return the numbers of the processors that this process may run on; elsewhere of all processors."""
    if is_linux():
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def second_cache_bytes() -> int:
    """Return the size of a core's second cache as glibc knows it; 0 if it does not, or is not there."""
    if not is_linux() or platform.libc_ver()[0] != "glibc":
        return 0
    return max(os.sysconf(_SC_LEVEL2_CACHE_SIZE), 0)


def describe_processor() -> str:
    """Return the name of the processor under macOS, such as "Apple M2"; elsewhere Python's, often empty."""
    if sys.platform == "darwin":
        with suppress(OSError):
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            if found.stdout.strip():
                return found.stdout.strip()
    return platform.processor()


# ---------------------------------------------------------------- threads and processes


def add_niceness(niceness: int) -> None:
    """Add to the niceness of the calling thread. Elsewhere threads have none, and nothing happens."""
    if not is_linux():
        return
    # A sandbox may forbid it. The thread then works as any other.
    with suppress(OSError):
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)


def is_traced(pid: int | str = "self") -> bool:
    """Return whether a debugger such as gdb is attached to a process; always False elsewhere."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:  # not Linux, or the process has ended
        return False
    return "\nTracerPid:\t0\n" not in status


def name_process(name: str) -> None:
    """Set the name of this process that `ps -o comm`, top and pstree show, of at most 15 bytes.

    Elsewhere it keeps its name.
    """
    with suppress(OSError):
        (_PROC / "self/comm").write_text(name, encoding="ascii")


def let_be_killed_first() -> None:
    """Let the system end this process before others when memory is short. Elsewhere nothing happens."""
    with suppress(OSError):
        (_PROC / "self/oom_score_adj").write_text("1000", encoding="ascii")


def signal_when_parent_ends(number: signal.Signals) -> None:
    """Let this process get a signal when its parent ends. Elsewhere nothing happens."""
    control = find_c_function("prctl")
    if control is not None:
        control(_PR_SET_PDEATHSIG, number)


def limit_memory(size: int) -> None:
    """Let this process get at most `size` bytes of memory beside what it has mapped; more is `MemoryError`.

    Elsewhere nothing happens: macOS has the limit, and does not heed it.
    """
    with suppress(OSError):
        pages = int((_PROC / "self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + size
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


class ThreadTimer:
    """A timer of the kernel for the processor time of one thread, which sends a signal to the process.

    Elsewhere it does not exist, and `is_set_up` is False. Source: timer_create(2).
    """

    def __init__(self, thread: int, number: signal.Signals) -> None:
        self._timer = ctypes.c_void_p()
        self._set = find_c_function("timer_settime")
        self.is_set_up = self._set is not None and self._create(thread, number)

    def set_back(self, seconds: float) -> None:
        """Let the timer expire after `seconds` of processor time from now."""
        if self.is_set_up and self._set is not None:
            # struct itimerspec: no repetition, then whole seconds and nanoseconds.
            whole, part = divmod(seconds, 1)
            self._set(self._timer, 0, struct.pack("llll", 0, 0, int(whole), int(part * 1e9)), None)

    def _create(self, thread: int, number: signal.Signals) -> bool:
        create = find_c_function("timer_create")
        if create is None:
            return False
        # struct sigevent: a value, the signal, and SIGEV_SIGNAL, which is 0.
        event = ctypes.create_string_buffer(struct.pack("Pii48x", 0, number, 0))
        clock = time.pthread_getcpuclockid(thread)
        return bool(create(clock, event, ctypes.byref(self._timer)) == 0)


# ---------------------------------------------------------------- files and sockets


class NotRegular(OSError):
    """A path names something else than a regular file, such as a pipe."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, and do not wait: to open a pipe waits for its writer.

    macOS has the same call. Raises `NotRegular` and other `OSError`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def lock_file(descriptor: int, *, waits: bool = False) -> None:
    """Lock an open file for this process until it is closed. macOS has the same call.

    Raises `BlockingIOError` if another process holds the lock and `waits` is False, and `OSError` where the
    file system has no locks.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_for_reading(descriptor: int) -> None:
    """Keep others from locking an open file alone, until it is closed. Raises `OSError` without locks."""
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def reserve_disk(descriptor: int, size: int) -> None:
    """Give an open file `size` bytes on the disk. Raises `OSError` if the disk has less.

    A file that is mapped must have its bytes: on a full disk, a write to the mapping ends the process.
    Elsewhere the free space is compared, and other processes can take it afterwards.
    """
    if is_linux():
        os.posix_fallocate(descriptor, 0, size)
        return
    disk = os.fstatvfs(descriptor)
    if disk.f_bavail * disk.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.truncate(descriptor, size)


def filter_packets(listening: socket.socket, program: Sequence[tuple[int, int, int, int]]) -> bool:
    """Attach a program in the kernel's filter language to a socket. Return False where the system cannot.

    An instruction is its code, the jumps if true and if false, and its operand. Source: the kernel's
    documentation, networking/filter.
    """
    if not is_linux():
        return False
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    pointer = struct.pack("HL", len(program), ctypes.addressof(buffer))
    try:
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
    except OSError:
        return False
    return True


def open_unnamed_listener(backlog: int) -> socket.socket:
    """Return a listening Unix socket with an abstract name that the kernel chooses.

    Elsewhere such names do not exist, and it raises `OSError`; only several processes need them.
    """
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind("")
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


def read_peer_user(connection: socket.socket) -> int | None:
    """Return the user id of the process at the other end of a Unix socket; elsewhere `None`."""
    if not is_linux():
        return None
    _, user, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return int(user)
