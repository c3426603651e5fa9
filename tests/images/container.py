"""Containers of an image that buildah built, run by bubblewrap.

A container has the image as its read-only root, the user of the image without capabilities, /sys to read, a
tmpfs at /tmp and one writable folder, /var/cache/vecmill. It shares the network of the host. Needs root,
buildah and bubblewrap.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CACHE = "/var/cache/vecmill"
PROGRAMS = ("buildah", "bwrap", "nsenter", "setpriv")
NAMESPACES = ("--mount", "--pid", "--ipc", "--uts", "--root", "--wd")


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its mounted files, its architecture, and its configuration in Docker's format."""

    root: Path
    architecture: str
    config: Mapping[str, Any]

    @property
    def user(self) -> list[str]:
        """The command that gives up all rights and becomes the user of the image."""
        user, _, group = self.config["User"].partition(":")
        rights = ("--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")
        return ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={group}", *rights]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the image, and the processor that QEMU emulates, if it does."""
        emulated = {name: os.environ[name] for name in ("QEMU_CPU",) if name in os.environ}
        pairs = (pair.partition("=") for pair in self.config["Env"])
        return {name: value for name, _, value in pairs} | emulated


@dataclass(frozen=True, slots=True)
class Container:
    """A running container: the process of bubblewrap, and the process id of its first process on the host."""

    image: Image
    process: subprocess.Popen[bytes]
    pid: int
    log: Path

    def run(self, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container as its user, as `docker exec` does."""
        return subprocess.run(
            ["nsenter", f"--target={self.pid}", *NAMESPACES, *self.image.user, *command],
            env=self.image.environment | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )


def buildah(*arguments: str) -> str:
    """Return the standard output of buildah. `STORAGE_DRIVER` chooses the storage, as in docker/build.sh."""
    command = ["buildah", "--storage-driver", os.environ.get("STORAGE_DRIVER", "vfs"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def missing_program() -> str | None:
    """Return the name of a program that is not installed, or `None`."""
    return next((name for name in PROGRAMS if shutil.which(name) is None), None)


@contextmanager
def mounted_image(name: str) -> Iterator[Image]:
    """Mount the files of an image until the context ends."""
    described = json.loads(buildah("inspect", "--type", "image", name))["Docker"]
    working = buildah("from", "--pull-never", name)
    try:
        yield Image(Path(buildah("mount", working)), described["architecture"], described["config"])
    finally:
        buildah("rm", working)


@contextmanager
def running_container(
    image: Image,
    cache: Path,
    arguments: Sequence[str],
    *,
    log: Path,
    mounts: Mapping[str, Path] | None = None,
) -> Iterator[Container]:
    """Run the entry point of an image with arguments until the context ends.

    `mounts` are read-only folders, by their path inside. The output of the container goes to `log`.
    """
    shutil.chown(cache, *(int(part) for part in image.config["User"].split(":")))
    binds = [word for inside, folder in (mounts or {}).items() for word in ("--ro-bind", str(folder), inside)]
    information, writer = os.pipe()
    command = [
        *("bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--as-pid-1", "--die-with-parent"),
        *("--info-fd", str(writer), "--ro-bind", str(image.root), "/", "--dev", "/dev", "--proc", "/proc"),
        *("--ro-bind", "/sys", "/sys"),
        *("--perms", "1777", "--tmpfs", "/tmp", "--bind", str(cache), CACHE, *binds),
        *image.user,
        *(image.config["Entrypoint"] or ()),
        *arguments,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=image.environment, pass_fds=(writer,), stdout=output, stderr=subprocess.STDOUT
        )
    pid: int | None = None
    try:
        os.close(writer)
        with os.fdopen(information) as file:
            pid = json.load(file)["child-pid"]
        yield Container(image, process, pid, log)
    finally:
        process.kill()
        if pid is not None:
            with suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL)  # it does not end with bubblewrap, because it changed its user
        process.wait()
