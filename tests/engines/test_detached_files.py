"""A mapped file may be truncated, overwritten or removed once it is detached.

Each test runs a process of its own: without the copy, a signal would end it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mappings are replaced on Linux only")

# `check` compares the mappings of a file of three pages and a bit with what the file had.
PREPARE = """
import mmap, os, sys
from pathlib import Path
from vecmill.engines.detached_files import detach_files, find_mappings

def map_file(file):
    file.parent.mkdir()
    file.write_bytes(bytes(range(256)) * 49)
    expected = file.read_bytes()
    with file.open("rb") as opened:
        shared = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        private = mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_PRIVATE)
        part = mmap.mmap(opened.fileno(), 4096, prot=mmap.PROT_READ, offset=8192)
    def check():
        assert shared[:] == private[:] == expected
        assert part[:] == expected[8192:12288]
    return check

def replace(file):
    file.unlink()
    file.write_bytes(b"y" * 10)

folder = Path(sys.argv[1])
"""
CHANGES = """
for change in (
    lambda file: os.truncate(file, 0),
    lambda file: file.write_bytes(b"x" * file.stat().st_size),
    lambda file: file.unlink(),
    replace,
):
    file = folder / str(id(change)) / "model.weights"
    check = map_file(file)
    detach_files(file.parent)
    assert not find_mappings(file.parent)
    change(file)
    check()
"""
MAPPED = """
file = folder / "model" / "model.weights"
check = map_file(file)
"""


def run(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_detached_file_may_be_changed(tmp_path: Path) -> None:
    done = run(PREPARE + CHANGES, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_copy_a_truncated_file_ends_the_process(tmp_path: Path) -> None:
    # What the module is for; if this ever passes unharmed, the module is not needed any more.
    assert run(PREPARE + MAPPED + "os.truncate(file, 0)\ncheck()", tmp_path).returncode == -7


def test_all_mappings_of_a_part_share_one_copy(tmp_path: Path) -> None:
    program = (
        PREPARE + MAPPED + "assert len(find_mappings(folder)[file]) == 3\n"
        "detach_files(folder)\n"
        "lines = [line.split() for line in open('/proc/self/maps') if 'vecmill-prepared' in line]\n"
        "print(len(lines), len({line[4] for line in lines}), len({line[2] for line in lines}))"
    )
    assert run(program, tmp_path).stdout == "3 1 2\n"  # mappings, files, offsets


def test_a_loaded_library_keeps_working(tmp_path: Path) -> None:
    # The loader of programs has written into its mappings, so each is copied as it is in memory.
    program = (
        "import ctypes, os, shutil, sys, _ctypes_test as source\n"
        "from pathlib import Path\n"
        "from vecmill.engines.detached_files import detach_files, find_mappings\n"
        "path = shutil.copy(source.__file__, sys.argv[1])\n"
        "library = ctypes.CDLL(path)\n"
        "assert len(find_mappings(Path(sys.argv[1]))[Path(path)]) > 2\n"
        "detach_files(Path(sys.argv[1]))\n"
        "os.truncate(path, 0)\n"
        "library.my_strdup.restype = ctypes.c_char_p\n"
        "print(library.my_strdup(b'as before').decode())"
    )
    pytest.importorskip("_ctypes_test", reason="this Python comes without its test libraries")
    done = run(program, tmp_path)
    assert done.stdout == "as before\n", done.stderr


NO_MEMORY = """
import vecmill.engines.detached_files as module

def refuse(*_):
    raise OSError(12, "Cannot allocate memory")

for name, value in (("available_mb", lambda: 0.02), ("available_mb", lambda: None)):
    setattr(module, name, value)
    detach_files(folder)
    assert len(find_mappings(folder)[file]) == 3
    check()
    os.memfd_create = refuse
"""


def test_a_copy_that_cannot_be_made_or_would_exhaust_the_memory_is_a_warning(tmp_path: Path) -> None:
    done = run(PREPARE + MAPPED + NO_MEMORY, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 2
    assert done.stderr.count("could not be copied to memory (Cannot allocate memory)") == 2


@pytest.mark.full
def test_files_of_layered_disks_are_found(tmp_path: Path) -> None:
    # The list of mappings has other numbers of devices than the files themselves.
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    layers = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
    merged = tmp_path / "merged"
    command = ["mount", "-t", "overlay", "-o", layers, "overlay", str(merged)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a layered disk needs root")
    try:
        done = run(PREPARE + CHANGES, merged)
    finally:
        subprocess.run(["umount", "--lazy", str(merged)], check=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_was_truncated_before_is_reported(tmp_path: Path) -> None:
    done = run(PREPARE + MAPPED + "os.truncate(file, 0)\ndetach_files(folder)", tmp_path)
    assert done.returncode == 0
    assert "could not be copied to memory (Bad address)" in done.stderr
