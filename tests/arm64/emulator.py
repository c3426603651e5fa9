"""An arm64 root of Debian packages, and QEMU, which runs its programs on this machine.

Linux starts a foreign program with the interpreter that is registered for it (binfmt_misc). The flag `F`
opens the interpreter at once, so that it is found inside the root too. The programs of the root see this
machine's kernel, and a processor that `QEMU_CPU` names.

QEMU lets a load overtake the store before it, which Arm forbids for the instructions of sequentially
consistent atomics (`stlr`, `ldar`). Threads that run at the same time can then wait for each other for ever.
On one processor they never do, so everything in the root runs on one. Engines compute in two threads all the
same.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SUITE = "trixie"
# QEMU 7.2 of Debian 12 ends with a segmentation fault when onnxruntime is imported; this suite has QEMU 10.
QEMU_PACKAGE = "qemu-user"
ROOT_PACKAGES = (
    "base-files",
    "coreutils",
    "dash",
    "libstdc++6",
    "python3",
    "python3-venv",
    "ca-certificates",
    "procps",
)
PACKAGES = "opt/packages"
PYTHON_VERSION = "3.13"  # of the suite
PLATFORM = "aarch64-manylinux_2_28"

# Graviton 2, without bf16; and Graviton 3, with it. What QEMU chooses by itself emulates vectors of 2,048
# bits and takes much longer.
PLAIN_PROCESSOR, BF16_PROCESSOR = "neoverse-n1", "neoverse-v1"

# The paths inside the root. The repository is read-only there.
INSIDE_REPOSITORY, INSIDE_RESULTS = Path("/repository"), Path("/results")

BINFMT = Path("/proc/sys/fs/binfmt_misc")
_HANDLER = "vecmill-arm64-"  # and the number of the process that registered it
# The first 20 bytes of an executable: ELF of 64 bits, little-endian, a program or a library, for AArch64. The
# mask leaves the system's ABI and the kind of executable open.
_MAGIC = bytes.fromhex("7f454c460201010000000000000000000200b700")
_MASK = bytes.fromhex("ffffffffffffff00fffffffffffffffffeffffff")

_MOUNTS = """
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
mount --bind "$2" "$1/repository"
mount -o remount,bind,ro "$1/repository"
root=$1; shift 2
exec chroot "$root" "$@"
"""


class CannotEmulate(Exception):
    """This machine cannot run arm64 programs. Says what it lacks."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine has that the emulation needs."""

    user: int
    programs: frozenset[str]
    binfmt: Path = BINFMT

    @classmethod
    def look(cls) -> "Machine":
        """Return what this machine has."""
        names = ("mmdebstrap", "unshare", "chroot", "mount")
        return cls(os.geteuid(), frozenset(name for name in names if shutil.which(name)))

    def require(self) -> None:
        """Raise `CannotEmulate` with what is missing, and how to get it."""
        if self.user != 0:
            raise CannotEmulate(
                "It mounts file systems and changes the root, so it needs root: sudo make arm64"
            )
        if "mmdebstrap" not in self.programs:
            raise CannotEmulate("There is no mmdebstrap. Install it: apt-get install mmdebstrap")
        missing = {"unshare", "chroot", "mount"} - self.programs
        if missing:
            names = ", no ".join(sorted(missing))
            raise CannotEmulate(f"There is no {names}. Install: apt-get install util-linux coreutils mount")
        if not (self.binfmt / "register").exists() and not _mount_binfmt(self.binfmt):
            raise CannotEmulate(
                "This kernel has no binfmt_misc, which starts arm64 programs with QEMU. Load it: modprobe "
                "binfmt_misc. In a container, load it on the host, and run the container with --privileged."
            )


def _mount_binfmt(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    command = ["mount", "-t", "binfmt_misc", "binfmt_misc", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def describe_handler(interpreter: Path, process: int) -> str:
    """Return the line that registers an interpreter. Source: the kernel's documentation, binfmt-misc."""
    return f":{_HANDLER}{process}:M::{_escape(_MAGIC)}:{_escape(_MASK)}:{interpreter}:F"


def _escape(magic: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in magic)


@contextmanager
def arm64_programs(interpreter: Path, binfmt: Path = BINFMT) -> Iterator[None]:
    """Let this machine start arm64 programs until the block ends. Other handlers for them stay."""
    for other in binfmt.glob(f"{_HANDLER}*"):
        if not Path("/proc", other.name.removeprefix(_HANDLER)).exists():  # its process was killed
            other.write_text("-1")
    process = os.getpid()
    (binfmt / "register").write_text(describe_handler(interpreter, process))
    try:
        yield
    finally:
        (binfmt / f"{_HANDLER}{process}").write_text("-1")


def make_debian(folder: Path, architecture: str, packages: Sequence[str]) -> None:
    """Extract Debian packages of an architecture, and all that they need, into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=extract",
            f"--architectures={architecture}",
            f"--include={','.join(packages)}",
            SUITE,
            str(folder),
        ],
        check=True,
    )


def install_wheels(uv: Path, root: Path, requirements: Sequence[str]) -> None:
    """Install requirements for the root's Python. pip would evaluate their markers for its own."""
    _run_uv(uv, root, ["--only-binary", ":all:", "--require-hashes", *requirements])


def install_projects(uv: Path, root: Path, projects: Sequence[Path]) -> None:
    """Install our own packages, which are pure Python, so that their commands are found."""
    _run_uv(uv, root, ["--reinstall", "--no-build-isolation", *map(str, projects)])


def _run_uv(uv: Path, root: Path, arguments: Sequence[str]) -> None:
    target = [
        # Whose build tools build our own packages. By itself uv takes the first Python that it finds.
        "--python",
        sys.executable,
        "--target",
        str(root / PACKAGES),
        "--python-platform",
        PLATFORM,
        "--python-version",
        PYTHON_VERSION,
    ]
    subprocess.run([str(uv), "pip", "install", "--quiet", "--no-deps", *target, *arguments], check=True)


def run_inside(
    root: Path, repository: Path, command: Sequence[str], *, processor: str, timeout_s: float
) -> int | None:
    """Run a command in the root, on one processor. Return its exit status, `None` if it took too long."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "QEMU_CPU": processor,
        "PYTHONPATH": f"/{PACKAGES}:{INSIDE_REPOSITORY}/tests",
        "PYTHONPYCACHEPREFIX": "/tmp/pycache",
    }
    variables = [f"{name}={value}" for name, value in environment.items()]
    inside = ["/usr/bin/env", "-i", "-C", str(INSIDE_REPOSITORY), *variables, *command]
    # The processes end with the first one of their namespace, which ends with `unshare`.
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    script = ["sh", "-euc", _MOUNTS, "sh", str(root), str(repository)]
    pinned = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    try:
        return subprocess.run(
            [*pinned, *isolated, *script, *inside], timeout=timeout_s, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"not done after {timeout_s:.0f} s: {shlex.join(command)}")
        return None
