"""The cache of prepared models on disk: optimised graphs, with weights packed for this processor.

    cache_dir/<fingerprint>-<ONNX Runtime>-<processor>/
        model.onnx       the optimised graph
        model.weights    its weights, plain and packed
        manifest.json    the size of every other file and the CRC-32 of each 64 MiB of it, against torn
                     writes, not against forgery

A folder is filled under a temporary name (`engines.owned_folders`) and renamed when it is complete. The
folder is not flushed to disk, since a flush would take longer than all other steps. If a power failure
damages the folder, the manifest reveals the damage at the next start. Processes that start at the same time
each fill a folder of their own. The first rename wins, and the other processes use that folder. Every start
checks the manifest; a damaged folder is moved away and filled again. The files are read-only and are never
changed in place. Engines map them, so all processes share one copy in memory. `engines.mapped_model` notices
if another program changes them.

If the cache cannot be written or its disk is too small, the model is served from memory: by the runtime's
session, if the engine can build the model there, else from a temporary folder in memory or on another disk.
"""

import contextlib
import errno
import json
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecmill.engines.owned_folders import LOCK_FILE, OwnedFolder, remove_abandoned
from vecmill.errors import CorruptModel, InvalidConfig
from vecmill.hardware.cores import available_cores
from vecmill.hardware.system_calls import reserve_disk
from vecmill.models.fingerprint import CHUNK_BYTES
from vecmill.values.json_text import decode_json

MODEL_FILE = "model.onnx"
WEIGHTS_FILE = "model.weights"
PREPARED_FILE = "manifest.json"

UNFINISHED = ".unfinished-"
TEMPORARY = "vecmill-prepared-"
NO_FOLDER = Path()

# Parts of a file are read side by side.
_PART_BYTES = 64 * 2**20

# A file system in memory, on Linux.
_MEMORY_FOLDER = Path("/dev/shm")
_READ_ONLY = 0o444
# Errors of folders that cannot be written, however much space is free.
_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

logger = logging.getLogger(__name__)

Fill = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class BuiltGraph:
    """A graph that the runtime optimises itself at each start, because the prepared graph cannot be kept.

    `source` is the graph, or the path of its file. `files` are the contents of the files with the weights of
    a graph in memory, by their names in the graph; `mapped` are those of the model directory. The runtime
    reads the weights where they are. With `keeps_16_bits` it converts weights in each call that uses them,
    else once, for which it needs memory.
    """

    source: Path | bytes
    files: Mapping[str, memoryview] = field(default_factory=dict)
    mapped: tuple[Path, ...] = ()
    keeps_16_bits: bool = False

    def list_mapped_files(self) -> list[Path]:
        """Return the files that the runtime may map."""
        if isinstance(self.source, bytes):
            return list(self.mapped)
        # The names of its weight files begin with the graph's name.
        return [path for path in self.source.parent.iterdir() if path.name.startswith(self.source.name)]


@dataclass(slots=True)
class PreparedModel:
    """A complete prepared folder. `temporary` owns a folder outside the cache; `close` removes it.

    If `built` is set, the runtime opens that graph instead of the graph in the folder. `prepare_again` makes
    the same model anew.
    """

    folder: Path
    temporary: OwnedFolder | None = None
    built: BuiltGraph | None = None
    prepare_again: Callable[[], "PreparedModel"] | None = None

    @property
    def path(self) -> Path:
        """The graph file, to be opened without further optimisation."""
        return self.folder / MODEL_FILE

    @property
    def mapped_folder(self) -> Path:
        """The folder of the files that the engine maps, `NO_FOLDER` for a graph in memory alone."""
        if self.built is None:
            return self.folder
        return next((path.parent for path in self.built.list_mapped_files()), NO_FOLDER)

    def list_mapped_files(self) -> list[Path]:
        """Return the files that the engine may map."""
        if self.built is not None:
            return self.built.list_mapped_files()
        unmapped = (LOCK_FILE, PREPARED_FILE)
        return [path for path in self.folder.rglob("*") if path.is_file() and path.name not in unmapped]

    def restore(self, *, is_changed: bool = False) -> None:
        """Prepare the model again if its files were changed or removed. Call it before they are opened again.

        `is_changed` tells that mapped files were changed. Raises the same errors as the preparation, and
        `CorruptModel` if these are files of the model directory, which cannot be prepared again.
        """
        if is_changed and self.mapped_folder != self.folder:
            raise CorruptModel(
                f"The files in {self.mapped_folder} were changed while they were served. Restart the program."
            )
        if self.prepare_again is None or _is_whole(self.folder):
            return
        again = self.prepare_again()
        self.close()
        self.folder, self.temporary, self.built = again.folder, again.temporary, again.built

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the model if the block, which makes an engine of it, raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folder if it was a temporary one."""
        if self.temporary is not None:
            self.temporary.remove()


def prepare_model(
    cache_dir: Path,
    name: str,
    fill: Fill,
    *,
    estimate_bytes: Callable[[], int] = lambda: 0,
    in_memory: Callable[[], PreparedModel] | None = None,
) -> PreparedModel:
    """Return the prepared model `name` of `cache_dir`; `fill` writes the files of a missing folder.

    `estimate_bytes` estimates the size of all files that `fill` writes. If the cache cannot hold them,
    `prepare_model` logs a warning and returns the result of `in_memory`, or else uses a temporary folder.
    Raises `InvalidConfig` if no temporary folder can hold the files either.
    """

    def prepare() -> PreparedModel:
        return _prepare(cache_dir / name, fill, estimate_bytes, in_memory)

    remove_abandoned(cache_dir, UNFINISHED, unlocked=True)
    for place in _temporary_places():
        remove_abandoned(place, TEMPORARY)
    found = prepare()
    # A graph in memory needs no files.
    found.prepare_again = prepare if found.folder != NO_FOLDER else None
    return found


def _prepare(
    folder: Path,
    fill: Fill,
    estimate_bytes: Callable[[], int],
    in_memory: Callable[[], PreparedModel] | None,
) -> PreparedModel:
    if _is_whole(folder):
        with contextlib.suppress(OSError):
            os.utime(folder)  # its last use, for `vecmill cache`
        return PreparedModel(folder)
    cache_dir, needed_bytes = folder.parent, estimate_bytes()
    try:
        cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        _fill_kept(folder, fill, needed_bytes)
    except OSError as error:
        logger.warning(
            "%s The model is served from memory, and each start prepares it again. %s another folder with "
            "--cache-dir.",
            _describe(cache_dir, error, needed_bytes),
            "Choose" if error.errno in _NOT_WRITABLE else "Free space, or choose",
        )
        return in_memory() if in_memory is not None else fill_temporary(fill, needed_bytes)
    return PreparedModel(folder)


def fill_temporary(fill: Fill, needed_bytes: int = 0) -> PreparedModel:
    """Fill a folder in memory or in the folder of temporary files. Raises `InvalidConfig`."""
    folder = _make_temporary(needed_bytes)
    try:
        with _disk_faults(folder.path, needed_bytes):
            fill(folder.path)
            _seal(folder.path)
    except OSError as error:
        folder.remove()
        raise InvalidConfig(
            f"{_describe(folder.path.parent, error, needed_bytes)} Choose a folder with enough space with "
            "--cache-dir."
        ) from error
    except BaseException:
        folder.remove()
        raise
    return PreparedModel(folder.path, folder)


def _make_temporary(needed_bytes: int) -> OwnedFolder:
    faults = []
    for place in _temporary_places():
        try:
            _require_room(place, needed_bytes)
            return OwnedFolder.make(place, TEMPORARY)
        except OSError as error:
            faults.append(_describe(place, error, needed_bytes))
    raise InvalidConfig(
        f"{' '.join(faults)} Choose a folder with enough space with --cache-dir, or precision fp32 on the "
        "onnx engine, which needs no files."
    )


def _fill_kept(folder: Path, fill: Fill, needed_bytes: int) -> None:
    _require_room(folder.parent, needed_bytes)
    logger.info("Preparing the model for this processor; this happens once.")
    unfinished = OwnedFolder.make(folder.parent, UNFINISHED)
    try:
        with _disk_faults(unfinished.path, needed_bytes):
            fill(unfinished.path)
            _seal(unfinished.path)
        unfinished.unlock()
        _install(unfinished.path, folder)
    finally:
        unfinished.remove()


def _temporary_places() -> tuple[Path, ...]:
    places = (_MEMORY_FOLDER, Path(tempfile.gettempdir()))
    return tuple(place for place in places if place.is_dir())


def _require_room(place: Path, needed_bytes: int) -> None:
    """Raise `OSError` if the disk of `place` has less free space than `needed_bytes`."""
    if shutil.disk_usage(place).free < needed_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def _disk_faults(folder: Path, needed_bytes: int) -> Iterator[None]:
    """Raise `OSError` instead of any error in the block, if `folder` cannot hold `needed_bytes`.

    Runtimes report a full disk, a quota or a limit on the size of files in ways of their own, or as a
    broken model.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) or error.errno is None:
            _probe(folder, needed_bytes)
        raise


def _probe(folder: Path, needed_bytes: int) -> None:
    """Remove the files in `folder`, except the lock, and raise `OSError` if it cannot hold `needed_bytes`."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK_FILE:
            path.unlink()
    with tempfile.TemporaryFile(dir=folder) as file:
        reserve_disk(file.fileno(), max(needed_bytes, 1))


def _describe(place: Path, error: OSError, needed_bytes: int) -> str:
    if error.errno in _NOT_WRITABLE:
        return f"The prepared model cannot be kept in {place} ({error.strerror})."
    needed = f"it needs about {needed_bytes // 10**6 + 1} MB, and " if needed_bytes else ""
    try:
        free = f"{needed}{shutil.disk_usage(place).free // 10**6} MB are free there"
    except OSError:
        free = f"{needed}the free space is unknown"
    return f"The prepared model cannot be kept in {place} ({error.strerror or error}): {free}."


def _is_whole(folder: Path) -> bool:
    """Return whether all files match the manifest."""
    try:
        manifest = decode_json((folder / PREPARED_FILE).read_bytes())
        if not manifest:
            raise ValueError("its manifest lists no file")
        for name, entry in manifest.items():
            if not _matches(folder / name, entry):
                raise ValueError(f"{name} is damaged")
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s is prepared again: %s.", folder, error)
        return False
    return True


def _matches(path: Path, entry: Mapping[str, Any]) -> bool:
    """Return whether a file has the size and the checksums of its entry in the manifest."""
    size, kept = entry["size"], entry["crc32"]
    if path.stat().st_size != size:
        return False
    if isinstance(kept, int):  # earlier releases kept one checksum of the whole file
        return _checksums(path, size, size) == [kept]
    return bool(_checksums(path, size) == kept)


def _checksums(path: Path, size: int, part_bytes: int = _PART_BYTES) -> list[int]:
    """Return the CRC-32 of each part of a file; a SHA-256 would take twice as long. Raises `OSError`."""
    starts = range(0, max(size, 1), max(part_bytes, 1))
    with ThreadPoolExecutor(max_workers=available_cores()) as pool:
        return list(pool.map(lambda start: _checksum(path, start, part_bytes), starts))


def _checksum(path: Path, start: int, count: int) -> int:
    """Return the CRC-32 of up to `count` bytes from the byte `start`."""
    chunk = memoryview(bytearray(min(CHUNK_BYTES, max(count, 1))))
    found = 0
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while count and (read := file.readinto(chunk[:count])):
            found = zlib.crc32(chunk[:read], found)
            count -= read
    return found


def _seal(folder: Path) -> None:
    """Write the manifest, and make all files read-only."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / LOCK_FILE)
    manifest = {}
    for path in files:
        size = path.stat().st_size
        manifest[path.relative_to(folder).as_posix()] = {"size": size, "crc32": _checksums(path, size)}
    (folder / PREPARED_FILE).write_text(json.dumps(manifest), encoding="utf-8")
    for path in (*files, folder / PREPARED_FILE):
        path.chmod(_READ_ONLY)


def _install(unfinished: Path, folder: Path) -> None:
    """Rename a complete folder to its final name.

    Replace an existing damaged folder; keep an existing complete one.
    """
    for _ in range(2):
        with contextlib.suppress(OSError):
            unfinished.rename(folder)
            return
        # Another process was first, or the existing folder is damaged. Then a process that found the same
        # damage may be first at the second attempt.
        if _is_whole(folder):
            return
        _move_away(folder)
    unfinished.rename(folder)


def _move_away(folder: Path) -> None:
    aside = OwnedFolder.make(folder.parent, UNFINISHED)
    with contextlib.suppress(FileNotFoundError):  # another process may have moved it
        folder.rename(aside.path / folder.name)
    aside.remove()
