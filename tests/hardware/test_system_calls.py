"""Each call that only Linux has works here, and has a substitute on other systems."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.source_tree import modules
from vecmill.hardware import system_calls
from vecmill.hardware.cores import available_cores
from vecmill.hardware.processor import multiplies_bytes, processor_model
from vecmill.hardware.system_calls import (
    ThreadTimer,
    add_niceness,
    describe_processor,
    filter_packets,
    find_c_function,
    is_linux,
    is_traced,
    limit_memory,
    open_unnamed_listener,
    read_peer_user,
    reserve_disk,
    second_cache_bytes,
    signal_when_parent_ends,
    usable_processors,
)

# What other systems lack, as it is written in a source file. `os.fork` is there, but not safe with threads.
LACKING = re.compile(
    r"sys\.platform|hasattr\((?:os|socket|signal|time)\b|sched_[sg]etaffinity|CDLL\(None\)|posix_fallocate"
    r"|SO_PEERCRED|SO_ATTACH|SO_PASSCRED|SO_REUSEPORT|TCP_(?:QUICKACK|USER_TIMEOUT|DEFER_ACCEPT|CORK)|prctl"
    r"|pthread_getcpuclockid|memfd_create|epoll|pidfd_open|posix_fadvise|copy_file_range|O_TMPFILE|\bos\.fork"
    r"|multiprocessing|setns|eventfd|timerfd|sendfile|splice|getrandom|O_DIRECT\b"
)
# The module that forks, before any thread starts, and refuses to on other systems.
FORKS = "vecmill_server.process.supervisor"


def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the calls believe that this system is macOS."""
    monkeypatch.setattr(system_calls, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr("platform.machine", lambda: "arm64")


def test_no_other_module_calls_what_other_systems_lack() -> None:
    found = {
        module.name: sorted(set(LACKING.findall(module.path.read_text("utf-8"))))
        for module in modules()
        if module.name != system_calls.__name__
    }
    assert {name: calls for name, calls in found.items() if calls} == {FORKS: ["os.fork"]}


def test_every_call_and_its_substitute_are_in_the_docs() -> None:
    docs = (Path(__file__).parents[2] / "docs/engines.md").read_text("utf-8")
    calls = (
        "sched_getaffinity",
        "setrlimit",
        "prctl",
        "posix_fallocate",
        "SO_PEERCRED",
        "timer_create",
        "malloc_trim",
    )
    for call in (*calls, "mallopt", "fesetenv", "setpriority", "SO_ATTACH_FILTER", "/proc", "/sys", "fork"):
        assert f"`{call}`" in docs, call


@pytest.mark.linux
def test_memory_beyond_the_limit_is_an_error() -> None:
    child = (
        "from vecmill.hardware.system_calls import limit_memory\n"
        "limit_memory(50_000_000)\n"
        "kept = bytearray(30_000_000)\n"
        "try:\n"
        "    bytearray(30_000_000)\n"
        "except MemoryError:\n"
        "    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


def test_elsewhere_memory_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_mac(monkeypatch)
    monkeypatch.setattr(system_calls, "_PROC", Path("/nowhere"))
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit_memory(1)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.linux
def test_a_timer_counts_the_processor_time_of_its_thread() -> None:
    """In a process of its own: a signal too many would end the one that runs the tests."""
    child = (
        "import signal, threading, time\n"
        "from vecmill.hardware.system_calls import ThreadTimer\n"
        "expired = threading.Event()\n"
        "signal.signal(signal.SIGVTALRM, lambda *_: expired.set())\n"
        "timer = ThreadTimer(threading.get_ident(), signal.SIGVTALRM)\n"
        "assert timer.is_set_up\n"
        "timer.set_back(0.01)\n"
        "while not expired.is_set():\n"
        "    pass\n"
        "timer.set_back(0.0)  # no time: it does not expire again\n"
        "signal.signal(signal.SIGVTALRM, signal.SIG_DFL)\n"
        "end = time.thread_time() + 0.1\n"  # longer than the timer would take
        "while time.thread_time() < end:\n"
        "    pass\n"
    )
    subprocess.run([sys.executable, "-c", child], timeout=60, check=True)


@pytest.mark.linux
def test_a_peer_is_known_by_its_user() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert read_peer_user(ours) == os.getuid()


@pytest.mark.linux
def test_a_process_gets_its_signal_when_its_parent_ends() -> None:
    child = (
        "import os, signal, sys\n"
        "from vecmill.hardware.system_calls import signal_when_parent_ends\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])\n"
        "parent = os.getpid()\n"
        "if os.fork():\n"
        "    os._exit(0)\n"
        "signal_when_parent_ends(signal.SIGCONT)\n"
        "if os.getppid() != parent:\n"  # it ended before the call
        "    os.kill(os.getpid(), signal.SIGCONT)\n"
        "print(signal.sigwait([signal.SIGCONT]).name)\n"
    )
    command = [sys.executable, "-c", child]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout == "SIGCONT\n"


@pytest.mark.parametrize("is_mac", [False, True], ids=["here", "mac"])
def test_a_file_gets_its_bytes_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mac: bool
) -> None:
    if is_mac:
        on_a_mac(monkeypatch)
    with (tmp_path / "file").open("w+b") as file:
        reserve_disk(file.fileno(), 4096)
        assert os.fstat(file.fileno()).st_size == 4096
        with pytest.raises(OSError, match=r"No space left|File too large"):
            reserve_disk(file.fileno(), 1 << 60)
        assert os.fstat(file.fileno()).st_size == 4096


def test_elsewhere_each_call_has_its_substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_mac(monkeypatch)
    assert not is_linux()
    assert find_c_function("malloc_trim") is None
    assert usable_processors() == frozenset(range(os.cpu_count() or 1))
    assert available_cores() >= 1
    assert second_cache_bytes() == 0
    add_niceness(10)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == os.getpriority(os.PRIO_PROCESS, 0)
    signal_when_parent_ends(signal.SIGKILL)
    timer = ThreadTimer(threading.get_ident(), signal.SIGKILL)
    assert not timer.is_set_up
    timer.set_back(1e-9)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert not filter_packets(listening, ((0x06, 0, 0, 0),))
        with socket.create_connection(listening.getsockname()):
            pass
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert read_peer_user(ours) is None


def test_without_proc_nothing_is_traced_and_a_process_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system_calls, "_PROC", tmp_path / "proc")
    assert not is_traced()
    system_calls.name_process("another")
    system_calls.let_be_killed_first()
    assert not (tmp_path / "proc").exists()


@pytest.mark.parametrize(
    ("printed", "expected"), [("Apple M2 Pro\n", "Apple M2 Pro"), ("\n", "arm"), (None, "arm")]
)
def test_a_mac_tells_the_name_of_its_processor(
    monkeypatch: pytest.MonkeyPatch, printed: str | None, expected: str
) -> None:
    on_a_mac(monkeypatch)

    def run(command: list[str], **_: object) -> SimpleNamespace:
        assert command == ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        if printed is None:
            raise FileNotFoundError(command[0])
        return SimpleNamespace(stdout=printed)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert describe_processor() == expected
    monkeypatch.setattr("vecmill.hardware.processor._read_lines", lambda root: [])
    assert processor_model() == expected
    assert multiplies_bytes()


@pytest.mark.linux
def test_a_listener_without_a_path_is_reached_by_the_name_that_the_kernel_chose() -> None:
    with open_unnamed_listener(1) as listening, socket.socket(socket.AF_UNIX) as client:
        name = listening.getsockname()
        assert name.startswith(b"\0")
        client.connect(name)
