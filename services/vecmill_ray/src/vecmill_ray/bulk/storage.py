"""Files on storage that all nodes of a cluster reach: object stores, and local or mounted folders.

An address is a URI, such as `s3://bucket/folder`, or a local path. Credentials come from the environment of
each node. A name that is shown or stored never contains the query or the password of a URI.
"""

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from vecmill.bulk.input_files import BUFFER_BYTES, import_arrow
from vecmill.errors import InvalidConfig

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ANY_ADDRESS = re.compile(_ADDRESS.pattern + r"\S*")

# A database file, as SQLAlchemy names it: dialect, relative path, query.
_DATABASE_FILE = re.compile(r"((?:sqlite|duckdb)(?:\+\w+)?:///)(?!/|:memory:|file:)([^?]+)(.*)", re.DOTALL)

# Object stores show an object only when it is complete. Other file systems need a rename.
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})

# Readers of a folder ignore names that begin with an underscore.
_UNFINISHED = "_unfinished-"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a storage, satisfies `sources.InputFile`. `str` returns the name for messages.

    `path` is the path in the file system. `changed` is the time of the last change in nanoseconds.
    """

    name: str
    path: str
    size: int
    changed: int
    filesystem: Any = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def suffix(self) -> str:
        """The last file name extension."""
        return Path(self.path).suffix

    def open(self, mode: str = "rb") -> Any:
        """Open the file for reading bytes and lines. Raises `OSError`."""
        # pyarrow's file has no `readline`.
        return BufferedReader(self.open_arrow(), BUFFER_BYTES)

    def open_arrow(self) -> Any:
        """Open the file for pyarrow's readers, with random access. Raises `OSError`."""
        return self.filesystem.open_input_file(self.path)


def absolute_address(address: str) -> str:
    """Return an address with an absolute path, since Ray's processes have another working directory.

    URIs of storage do not change. A relative path of a database file becomes absolute.
    """
    database = _DATABASE_FILE.match(address)
    if database is not None:
        return f"{database[1]}{os.path.abspath(database[2])}{database[3]}"
    return address if _ADDRESS.match(address) else os.path.abspath(address)


class SharedStorage:
    """The folder or file at an address. Raises `InvalidConfig` for an address that cannot be used."""

    def __init__(self, address: str) -> None:
        import_arrow()
        from pyarrow import fs

        self.address = address
        self._kinds = fs.FileType
        self._selector = fs.FileSelector
        self._bridge = fs.PyFileSystem
        self.filesystem, self.path = _resolve(fs, address)
        self.is_local = isinstance(self.filesystem, fs.LocalFileSystem)
        scheme = _ADDRESS.match(address)
        self._prefix = "" if scheme is None or self.is_local else scheme.group().lower()
        self.name = self._name(self.path)

    def would_list(self, other: "SharedStorage") -> bool:
        """Return whether `files` would return files in the folder `other`."""
        is_same = self.filesystem.type_name == other.filesystem.type_name
        is_inside = is_same and other.path.startswith(f"{self.path.rstrip('/')}/")
        return is_inside and not _is_hidden(self.path, other.path)

    def files(self) -> list[StoredFile]:
        """Return the file, or all files of the folder in the order of their paths, without hidden files.

        Names of hidden files begin with a dot or an underscore. Raises `InvalidConfig`.
        """
        with self._report("read"):
            found = self.filesystem.get_file_info(self.path)
            if found.type == self._kinds.File:
                return [self._stored(found)]
            if found.type == self._kinds.NotFound:
                raise InvalidConfig(f"There is no file or folder {self.name}.")
            inside = self.filesystem.get_file_info(self._selector(self.path, recursive=True))
        files = [
            one for one in inside if one.type == self._kinds.File and not _is_hidden(self.path, one.path)
        ]
        return [self._stored(one) for one in sorted(files, key=lambda one: str(one.path))]

    def list_names(self) -> Mapping[str, int]:
        """Return the names and sizes of the files in the folder, none if there is no folder."""
        with self._report("read"):
            if isinstance(self.filesystem, self._bridge):
                # Other processes have written files since fsspec's last listing.
                self.filesystem.handler.fs.invalidate_cache()
            selector = self._selector(self.path, allow_not_found=True)
            found = self.filesystem.get_file_info(selector)
        return {one.base_name: one.size for one in found if one.type == self._kinds.File}

    def file(self, name: str) -> StoredFile:
        """Return the file `name` of the folder, which must exist. Raises `InvalidConfig`."""
        with self._report("read"):
            return self._stored(self.filesystem.get_file_info(self._join(name)))

    def read(self, name: str) -> bytes | None:
        """Return the content of the file `name` of the folder, `None` if there is no such file."""
        with self._report("read"):
            try:
                with self.filesystem.open_input_stream(self._join(name), compression=None) as file:
                    content: bytes = file.read()
                    return content
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write the file `name` of the folder: the file is either complete or absent.

        An existing file is replaced. Raises `InvalidConfig` with an `OSError` as its cause.
        """
        with self._report("written"):
            if self.is_local:
                _write_local(Path(self.path), name, content)
            elif self.filesystem.type_name in _OBJECT_STORES:
                self._put(self._join(name), content)
            else:
                unfinished = self._join(f"{_UNFINISHED}{uuid.uuid4().hex}")
                self.filesystem.create_dir(self.path, recursive=True)
                self._put(unfinished, content)
                self.filesystem.move(unfinished, self._join(name))

    def remove(self, name: str) -> None:
        """Remove the file `name` of the folder if it exists."""
        with self._report("written"):
            if self.filesystem.get_file_info(self._join(name)).type == self._kinds.File:
                self.filesystem.delete_file(self._join(name))

    def remove_unfinished(self) -> None:
        """Remove the temporary files of writers that were killed."""
        for name in self.list_names():
            if name.startswith(_UNFINISHED):
                self.remove(name)

    def _put(self, path: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(path, compression=None) as file:
            file.write(content)

    def _join(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def _name(self, path: str) -> str:
        return f"{self._prefix}{path}"

    def _stored(self, found: Any) -> StoredFile:
        if found.type != self._kinds.File:
            raise InvalidConfig(f"There is no file {self._name(found.path)}.")
        return StoredFile(
            self._name(found.path), found.path, found.size, found.mtime_ns or 0, self.filesystem
        )

    @contextmanager
    def _report(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise InvalidConfig(f"{self.name} cannot be {verb}: {reason}.") from error


def _resolve(fs: Any, address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it. Raises `InvalidConfig`."""
    if not _ADDRESS.match(address):
        return fs.LocalFileSystem(), os.path.abspath(address)
    try:
        filesystem, path = fs.FileSystem.from_uri(address)
        return filesystem, str(path)
    except (ValueError, NotImplementedError, OSError) as error:
        # Ray Data brings fsspec, which knows more kinds of storage.
        try:
            from fsspec.core import url_to_fs

            found, path = url_to_fs(address)
        except (ImportError, ValueError):
            scheme = address.partition("://")[0]
            # The address may contain a password, and the reason the address.
            reason = _ANY_ADDRESS.sub(f"{scheme}://...", str(error).replace(address, f"{scheme}://..."))
            raise InvalidConfig(
                f"A {scheme}:// address cannot be used: {reason.rstrip('.')}. If it is the address of a "
                "database, add --query and --key-column."
            ) from None
        return fs.PyFileSystem(fs.FSSpecHandler(found)), str(path)


def _is_hidden(folder: str, path: str) -> bool:
    inner = path[len(folder) :].strip("/")
    return any(part.startswith((".", "_")) for part in inner.split("/"))


def _write_local(folder: Path, name: str, content: bytes) -> None:
    """Write a file under a temporary name of its own, flush it to disk and rename it."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
    file: IO[bytes]
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / name)
