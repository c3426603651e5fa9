"""How much memory loaded engines may take: no more than the container has, whatever the machine has."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from vecmill.hardware.memory import MemoryUse, available_mb, memory_limit_mb, read_memory_use

MACHINE = "MemTotal:       1000 kB\nMemFree: 100 kB\nMemAvailable:    400 kB\n"
OF_MACHINE = MemoryUse(600 * 1024, 1000 * 1024)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MACHINE, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def limited(folder: str, limit: str, used: int) -> dict[str, str]:
    """The files of a control group of version 2, with 100 bytes of cached files that can be freed."""
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": "anon 1\ninactive_file 100\n",
    }


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", **limited("sys/fs/cgroup", "50100", 30_100)}
    assert available_mb(write(tmp_path, files)) == 20_100 / 1e6
    assert memory_limit_mb(tmp_path) == 50_100 / 1e6


def test_the_limit_of_a_unit_of_systemd_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/system.slice/vecmill.service\n",
        **limited("sys/fs/cgroup/system.slice/vecmill.service", "9000", 3_100),
        **limited("sys/fs/cgroup/system.slice", "8000", 7_100),
    }
    # The slice has the smaller limit, and less memory left.
    assert available_mb(write(tmp_path, files)) == 1_000 / 1e6
    assert memory_limit_mb(tmp_path) == 8_000 / 1e6


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_without_a_limit_the_memory_of_the_machine_counts(tmp_path: Path, limit: str) -> None:
    files = {"proc/self/cgroup": "0::/app\n", **limited("sys/fs/cgroup/app", limit, 1)}
    assert available_mb(write(tmp_path, files)) == 400 * 1024 / 1e6
    assert memory_limit_mb(tmp_path) is None


def test_the_memory_in_use_is_that_of_the_smallest_group(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/app\n",
        **limited("sys/fs/cgroup/pod/app", "max", 300),
        **limited("sys/fs/cgroup/pod", "5000", 400),
    }
    assert read_memory_use(write(tmp_path, files)) == MemoryUse(300, 5000)


def test_groups_of_version_1_count(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/app"
    files = {
        "proc/self/cgroup": "4:memory:/app\n0::/\n",
        f"{folder}/memory.limit_in_bytes": "7000\n",
        f"{folder}/memory.usage_in_bytes": "500\n",
        f"{folder}/memory.stat": "inactive_file 1\ntotal_inactive_file 50\n",
    }
    assert read_memory_use(write(tmp_path, files)) == MemoryUse(450, 7000)


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_without_a_limit_the_memory_in_use_is_the_machine_s(tmp_path: Path, limit: str) -> None:
    files = {"proc/self/cgroup": "0::/app\n", **limited("sys/fs/cgroup/app", limit, 300)}
    assert read_memory_use(write(tmp_path, files)) == OF_MACHINE


def test_without_linux_the_memory_in_use_is_unknown(tmp_path: Path) -> None:
    assert read_memory_use(tmp_path) is None
    assert available_mb(tmp_path) is None


ARENAS = """
import ctypes, threading
from vecmill.hardware.memory import limit_arenas
libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
limit_arenas({cores})
together = threading.Barrier(12)
def allocate():
    libc.malloc(1000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
file = ctypes.c_void_p(libc.fopen({path!r}.encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.linux
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
@pytest.mark.parametrize(("cores", "most"), [(1, 2), (3, 3)])
def test_threads_allocate_from_as_many_arenas_as_there_are_cores(
    tmp_path: Path, cores: int, most: int
) -> None:
    report = tmp_path / "malloc.xml"
    subprocess.run([sys.executable, "-c", ARENAS.format(cores=cores, path=str(report))], check=True)
    assert 1 <= report.read_text().count("<heap nr=") <= most
