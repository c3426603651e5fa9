"""Hides what only Linux has from this process and from every Python that it starts.

Python imports this module by its name when it starts, if its folder is in PYTHONPATH, where
`make test-elsewhere` puts it. The standard library and other packages still know that this is Linux; vecmill
believes that it is macOS.
"""

import importlib.abc
import importlib.machinery
import os
import select
import socket
import sys
import time
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

HIDDEN = {
    os: (
        *("sched_getaffinity", "sched_setaffinity", "posix_fallocate", "posix_fadvise", "memfd_create"),
        *("copy_file_range", "eventfd", "pidfd_open", "splice", "setns", "unshare"),
    ),
    select: ("epoll",),
    socket: ("SO_PEERCRED", "SO_PASSCRED", "TCP_QUICKACK", "TCP_USER_TIMEOUT", "TCP_DEFER_ACCEPT"),
    time: ("pthread_getcpuclockid",),
}
FOLDERS = ("/proc", "/sys")
SYSTEM_CALLS = "vecmill.hardware.system_calls"


def hide_folders(event: str, arguments: tuple[Any, ...]) -> None:
    """Let Python code find nothing in /proc and /sys."""
    if event not in ("open", "os.listdir", "os.scandir") or not arguments:
        return
    refuse_hidden(arguments[0])


def refuse_hidden(path: Any) -> None:
    """Raise `FileNotFoundError` if `path` is in a hidden folder."""
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if name in FOLDERS or name.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
        raise FileNotFoundError(2, "No such file or directory", name)


def hide_status(name: str) -> None:
    """Let a function of `os` that reads the status of a file find none in a hidden folder."""
    read = getattr(os, name)

    def read_or_refuse(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        refuse_hidden(path)
        status: os.stat_result = read(path, *arguments, **options)
        return status

    setattr(os, name, read_or_refuse)


class NamelessSocket(socket.socket):
    """A socket that has no abstract name, as on a Mac."""

    def bind(self, address: Any) -> None:
        """Bind to an address with a path."""
        if self.family == socket.AF_UNIX and (not address or address[0] in ("\0", 0)):
            raise OSError(22, "Invalid argument")
        super().bind(address)


class _MacLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.sys = SimpleNamespace(platform="darwin")  # type: ignore[attr-defined]


class _MacFinder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != SYSTEM_CALLS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _MacLoader(fullname, spec.origin)
        return spec


for module, names in HIDDEN.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
hide_status("stat")
hide_status("lstat")
socket.socket = NamelessSocket  # type: ignore[misc]
sys.meta_path.insert(0, _MacFinder())
sys.addaudithook(hide_folders)
