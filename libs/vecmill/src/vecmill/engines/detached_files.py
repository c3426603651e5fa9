"""Copies of mapped files in memory, so that changes of the files cannot reach a running engine.

Runtimes map the prepared files. If another process truncates a mapped file, the next access ends this process
with SIGBUS. If another process overwrites the file, the engine computes with the new bytes. After the runtime
has opened the files, this module copies the mapped parts to memory, and replaces each mapping by a mapping of
the copy at the same address. All mappings of the same part share one copy. Afterwards the files may be
changed, truncated or removed.

This needs Linux. On other systems the mappings stay as they are.
"""

import ctypes
import errno
import logging
import mmap
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vecmill.hardware.memory import available_mb

logger = logging.getLogger(__name__)

_MAPS = Path("/proc/self/maps")
_COPY_BYTES = 4 * 2**20
_MEMORY_SHARE = 0.9  # of the available memory that the copies may take
# From <linux/mman.h>; Python has no names for them.
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class FileMapping:
    """One mapping of a file: addresses in this process, protection (`PROT_*`), and offset in the file."""

    start: int
    size: int
    protection: int
    offset: int


def detach_files(folder: Path) -> None:
    """Replace all mappings of files in `folder` by mappings of copies in memory.

    The copies need as much memory as the mapped parts of the files. If the copies cannot be made, the
    mappings stay as they are, and a warning is logged.
    """
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return
    try:
        found = [_parts_of(mappings) for mappings in find_mappings(folder).values()]
        _require_memory(sum(alike[0].size for parts in found for alike in parts))
        for parts in found:
            _detach_file(parts)
    except OSError as error:
        logger.warning(
            "The prepared files in %s could not be copied to memory (%s). Do not change them while the model "
            "is served.",
            folder,
            error.strerror,
        )


def find_mappings(folder: Path) -> Mapping[Path, list[FileMapping]]:
    """Return the mappings of each file in `folder`. Raises `OSError` if they cannot be listed."""
    files: dict[object, Path] = {}
    for path in folder.rglob("*"):
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            # File systems in layers (overlayfs, btrfs) state other devices here than in the list of mappings.
            files[str(path.resolve())] = path
            files[os.major(status.st_dev), os.minor(status.st_dev), status.st_ino] = path
    mappings: dict[Path, list[FileMapping]] = {}
    for name, identity, mapping in _list_mappings():
        mapped = files.get(name) or files.get(identity)
        if mapped is not None:
            mappings.setdefault(mapped, []).append(mapping)
    return mappings


def _list_mappings() -> Iterator[tuple[str, tuple[int, int, int], FileMapping]]:
    """Yield the path, the device with the inode, and the addresses of each mapping of this process."""
    for line in _MAPS.read_text("utf-8", "surrogateescape").splitlines():
        addresses, letters, offset, device, inode, *name = line.split(maxsplit=5)
        start, end = (int(address, 16) for address in addresses.split("-"))
        major, minor = (int(number, 16) for number in device.split(":"))
        bits = zip(letters, (mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC), strict=False)
        protection = sum(bit for letter, bit in bits if letter != "-")
        identity = (major, minor, int(inode))
        yield "".join(name), identity, FileMapping(start, end - start, protection, int(offset, 16))


def _parts_of(mappings: list[FileMapping]) -> list[list[FileMapping]]:
    """Return the mappings of one file, grouped by the part of the file that they map."""
    # The loader of programs writes addresses into its mappings of a library, so each has its own content.
    is_library = any(mapping.protection & mmap.PROT_EXEC for mapping in mappings)
    parts: dict[tuple[int, ...], list[FileMapping]] = {}
    for mapping in mappings:
        key = (mapping.start,) if is_library else (mapping.offset, mapping.size)
        parts.setdefault(key, []).append(mapping)
    return list(parts.values())


def _require_memory(needed_bytes: int) -> None:
    """Raise `OSError` if the copies would exhaust the memory: the kernel would end this process."""
    available = available_mb()
    if available is not None and needed_bytes > _MEMORY_SHARE * available * 1e6:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def _detach_file(parts: list[list[FileMapping]]) -> None:
    """Copy each mapped part to memory, and replace its mappings at once, so that few pages are held twice."""
    copy = os.memfd_create("vecmill-prepared", os.MFD_CLOEXEC)
    try:
        offset = 0
        for alike in parts:
            _copy_part(alike[0], copy, offset)
            for mapping in alike:
                _replace(mapping, copy, offset)
            offset += alike[0].size
    finally:
        os.close(copy)


def _copy_part(mapping: FileMapping, copy: int, offset: int) -> None:
    """Write the content of `mapping` to the file `copy`. Raises `OSError`, also if the file was truncated."""
    os.ftruncate(copy, offset + mapping.size)
    content = memoryview((ctypes.c_char * mapping.size).from_address(mapping.start)).cast("B")
    done = 0
    while done < mapping.size:
        # If a page of the mapping has no file behind it, this call fails, where a read would raise a signal.
        done += os.pwrite(copy, content[done : done + _COPY_BYTES], offset + done)


def _replace(mapping: FileMapping, copy: int, offset: int) -> None:
    """Map the copy anywhere, then move the new mapping over the old mapping in one step."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = library.mremap.restype = ctypes.c_void_p
    library.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    library.mremap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p),
    )
    size = mapping.size
    found = library.mmap(None, size, mapping.protection, mmap.MAP_PRIVATE, copy, offset)
    if found != _FAILED:
        found = library.mremap(found, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, mapping.start)
    if found == _FAILED:
        number = ctypes.get_errno() or errno.ENOMEM
        raise OSError(number, os.strerror(number))
