"""Reads the directory of a zip archive, as far as PyTorch writes archives.

Every member is stored, not compressed, so a member is a range of bytes of the file. The sizes and offsets
that the archive states, also in its zip64 records, must agree with each other and with the file. Members must
not overlap, so all members together are at most as large as the file.

Source of the rules: PKWARE's APPNOTE 6.3.10, and miniz as PyTorch 2.13 uses it.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from vecmill.models.pytorch.pickled import DamagedFile, RefusedContent, show

SIGNATURE = b"PK\x03\x04"
MAX_MEMBERS = 2**14
_MAX_NAME_BYTES = 512  # the name of a file, and that of a member in PyTorch's folder

_LOCAL = struct.Struct("<4s5HL2L2H")
_ENTRY = struct.Struct("<4s6HL2L5H2L")
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_EXTRA = struct.Struct("<2H")
_ENTRY_SIGNATURE, _END_SIGNATURE = b"PK\x01\x02", b"PK\x05\x06"
_END_64_SIGNATURE, _LOCATOR_64_SIGNATURE = b"PK\x06\x06", b"PK\x06\x07"

_IN_ZIP64 = 0xFFFFFFFF  # the value is in a zip64 record
_COUNT_IN_ZIP64 = 0xFFFF
_ZIP64_EXTRA = 1
_SIZES_FOLLOW, _UTF8 = 1 << 3, 1 << 11  # the flags that PyTorch sets
_STORED = 0


@dataclass(frozen=True, slots=True)
class _Directory:
    """The range of the central directory in the file, and the number of its entries."""

    start: int
    stop: int
    count: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of the central directory, of `length` bytes."""

    name: bytes
    offset: int
    size: int
    length: int


def read_members(data: memoryview) -> Mapping[str, memoryview]:
    """Return the content of each member of the archive `data` by name.

    Raises `DamagedFile` if the archive contradicts itself, `RefusedContent` for compressed and encrypted
    members.
    """
    directory = _find_directory(data)
    ranges: list[tuple[int, int]] = []
    members: dict[str, memoryview] = {}
    for entry in _read_entries(data, directory):
        start = _find_content(data[: directory.start], entry)
        ranges.append((entry.offset, start + entry.size))
        try:
            name = entry.name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DamagedFile("a name in its archive is not UTF-8") from error
        if name in members:
            raise DamagedFile(f"its archive has {show(name)} twice")
        members[name] = data[start : start + entry.size]
    ranges.sort()
    for (_, stop), (start, _) in pairwise(ranges):
        if start < stop:
            raise DamagedFile("members of its archive overlap")
    return members


def _find_directory(data: memoryview) -> _Directory:
    end = len(data) - _END.size
    if end < 0:
        raise DamagedFile("it is too short for an archive")
    signature, disk, first_disk, here, count, size, start, comment = _END.unpack(data[end:])
    if signature != _END_SIGNATURE or comment:
        raise DamagedFile("its archive has no end")
    if disk or first_disk or here != count:
        raise RefusedContent("is one of several parts of an archive")
    end_64 = _find_end_64(data, end)
    if end_64 is None:
        return _check_directory(_Directory(start, start + size, count), end)
    values = _END_64.unpack(data[end_64 : end_64 + _END_64.size])
    disk, first_disk, here_64, count_64, size_64, start_64 = values[4:]
    if disk or first_disk or here_64 != count_64:
        raise RefusedContent("is one of several parts of an archive")
    for value, value_64, marker in (
        (count, count_64, _COUNT_IN_ZIP64),
        (size, size_64, _IN_ZIP64),
        (start, start_64, _IN_ZIP64),
    ):
        if value not in (value_64, marker):
            raise DamagedFile("the two ends of its archive differ")
    return _check_directory(_Directory(start_64, start_64 + size_64, count_64), end_64)


def _find_end_64(data: memoryview, end: int) -> int | None:
    """Return the offset of the zip64 end, which its locator states; `None` if there is no locator."""
    place = end - _LOCATOR_64.size
    if place < 0 or data[place : place + 4] != _LOCATOR_64_SIGNATURE:
        return None
    _, disk, offset, disks = _LOCATOR_64.unpack(data[place:end])
    if offset + _END_64.size != place or data[offset : offset + 4] != _END_64_SIGNATURE:
        raise DamagedFile("its archive has no zip64 end where it states one")
    if disk or disks > 1:
        raise RefusedContent("is one of several parts of an archive")
    return int(offset)


def _check_directory(directory: _Directory, end: int) -> _Directory:
    if directory.stop != end:
        raise DamagedFile("the directory of its archive is not where the archive states it")
    if directory.count > MAX_MEMBERS:
        raise RefusedContent(f"is an archive of {directory.count} members, more than {MAX_MEMBERS}")
    return directory


def _read_entries(data: memoryview, directory: _Directory) -> Iterator[_Entry]:
    position = directory.start
    for _ in range(directory.count):
        entry = _read_entry(data[position : directory.stop])
        yield entry
        position += entry.length
    if position != directory.stop:
        raise DamagedFile("the directory of its archive has another number of members than it states")


def _read_entry(data: memoryview) -> _Entry:
    """Read the entry at the start of `data`, which ends with the directory."""
    if len(data) < _ENTRY.size:
        raise DamagedFile("the directory of its archive is incomplete")
    values = _ENTRY.unpack(data[: _ENTRY.size])
    signature, _, _, flags, method, _, _, _, stored_size, size = values[:10]
    name_size, extra_size, comment_size, disk, _, _, offset = values[10:]
    length = _ENTRY.size + name_size + extra_size + comment_size
    if signature != _ENTRY_SIGNATURE or length > len(data):
        raise DamagedFile("the directory of its archive is incomplete")
    if method != _STORED:
        raise RefusedContent("has compressed members, which PyTorch does not write")
    if flags & ~(_SIZES_FOLLOW | _UTF8) or disk:
        raise RefusedContent("has encrypted members or members in other files")
    if name_size > _MAX_NAME_BYTES:
        raise RefusedContent(f"has a member whose name has {name_size} bytes")
    name_stop = _ENTRY.size + name_size
    name, extra = bytes(data[_ENTRY.size : name_stop]), data[name_stop : name_stop + extra_size]
    size, stored_size, offset = _read_zip64(extra, (size, stored_size, offset))
    if size != stored_size:
        raise DamagedFile(f"the member {show(name)} of its archive has two sizes")
    return _Entry(name, offset, size, length)


def _read_zip64(extra: memoryview, values: tuple[int, ...]) -> tuple[int, ...]:
    """Return `values`, with those that are in the zip64 record of `extra`."""
    while len(extra) >= _EXTRA.size:
        kind, size = _EXTRA.unpack(extra[: _EXTRA.size])
        record, extra = extra[_EXTRA.size : _EXTRA.size + size], extra[_EXTRA.size + size :]
        if kind == _ZIP64_EXTRA:
            count = values.count(_IN_ZIP64)
            if size != len(record) or size < 8 * count:
                raise DamagedFile("a zip64 record of its archive is incomplete")
            numbers = iter(struct.unpack(f"<{count}Q", record[: 8 * count]))
            return tuple(next(numbers) if value == _IN_ZIP64 else value for value in values)
    if _IN_ZIP64 in values:
        raise DamagedFile("its archive lacks a zip64 record")
    return values


def _find_content(data: memoryview, entry: _Entry) -> int:
    """Return the offset of the content of a member, whose own header must agree with the directory."""
    start = entry.offset + _LOCAL.size
    if start > len(data):
        raise DamagedFile(f"the member {show(entry.name)} of its archive is not in the file")
    values = _LOCAL.unpack(data[entry.offset : start])
    signature, _, flags, method, _, _, _, _, size, name_size, extra_size = values
    name = bytes(data[start : start + name_size])
    start += name_size + extra_size
    if signature != SIGNATURE or name != entry.name or method != _STORED:
        raise DamagedFile(f"the member {show(entry.name)} of its archive is not where the archive states it")
    if size not in (entry.size, _IN_ZIP64) and not flags & _SIZES_FOLLOW:
        raise DamagedFile(f"the member {show(entry.name)} of its archive has two sizes")
    if start + entry.size > len(data):
        raise DamagedFile(f"the member {show(entry.name)} of its archive is not in the file")
    return int(start)
