"""The cache of prepared models on disk: optimised graphs, with weights packed for this processor.

    cache_dir/<fingerprint>-<ONNX Runtime>-<processor>/
        model.onnx       the optimised graph
        model.weights    its weights, plain and packed; memory-mapped, so that all sessions share one copy
        manifest.json    size and CRC-32 of every other file, against torn writes, not against forgery

A folder is filled under a temporary name and renamed when it is complete. The folder is not flushed to disk,
since a flush would take longer than all other steps. If a power failure damages the folder, the manifest
reveals the damage at the next start. Processes that start at the same time each fill a folder of their own.
The first rename wins, and the other processes use that folder. Every start checks the manifest; a damaged
folder is moved away and filled again. Files that a running process has mapped stay readable after their
removal.
"""

import contextlib
import json
import logging
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vecmill.errors import CorruptModel, InvalidConfig
from vecmill.models.fingerprint import read_chunks

MODEL_FILE = "model.onnx"
WEIGHTS_FILE = "model.weights"
MANIFEST_FILE = "manifest.json"

_UNFINISHED = ".unfinished-"
_ABANDONED_S = 3600.0  # no model takes an hour to prepare: the process that made an older folder has ended

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A complete prepared folder. `temporary` owns a folder outside the cache; `close` removes it."""

    folder: Path
    temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The graph file, to be opened without further optimisation."""
        return self.folder / MODEL_FILE

    def close(self) -> None:
        """Remove the folder if it was a temporary one."""
        if self.temporary is not None:
            self.temporary.cleanup()


def prepare_model(cache_dir: Path, name: str, fill: Callable[[Path], None]) -> PreparedModel:
    """Return the prepared model `name` of `cache_dir`; `fill` writes the files of a missing folder.

    If the cache cannot be written, `prepare_model` uses a temporary folder and logs a warning. Raises
    `InvalidConfig` if the temporary folder cannot be written either.
    """
    folder = cache_dir / name
    if _is_whole(folder):
        return PreparedModel(folder)
    try:
        _prepare_kept(folder, fill)
    except OSError as error:
        return _prepare_temporary(cache_dir, error, fill)
    return PreparedModel(folder)


def _prepare_kept(folder: Path, fill: Callable[[Path], None]) -> None:
    cache_dir = folder.parent
    cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_abandoned(cache_dir)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=cache_dir))
    try:
        fill(unfinished)
        _seal(unfinished)
        _install(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _prepare_temporary(cache_dir: Path, error: OSError, fill: Callable[[Path], None]) -> PreparedModel:
    logger.warning(
        "The prepared model cannot be kept in %s (%s), so each start prepares it again. "
        "Choose a cache directory that can be written.",
        cache_dir,
        error.strerror,
    )
    temporary = tempfile.TemporaryDirectory(prefix="vecmill-")
    try:
        fill(Path(temporary.name))
    except OSError as failure:
        temporary.cleanup()
        raise InvalidConfig(
            f"The prepared model can be written neither to {cache_dir} ({error.strerror}) nor to "
            f"{tempfile.gettempdir()} ({failure.strerror}). Choose a cache directory with free space."
        ) from failure
    except BaseException:
        temporary.cleanup()
        raise
    return PreparedModel(Path(temporary.name), temporary)


def _is_whole(folder: Path) -> bool:
    """Return whether all files match the manifest."""
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
        if not manifest:
            raise ValueError("its manifest lists no file")
        for name in manifest:
            size, checksum = manifest[name]["size"], manifest[name]["crc32"]
            if (folder / name).stat().st_size != size or _checksum(folder / name) != checksum:
                raise ValueError(f"{name} is damaged")
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError, CorruptModel) as error:
        logger.warning("%s is prepared again: %s.", folder, error)
        return False
    return True


def _checksum(path: Path) -> int:
    """Return the CRC-32 of a file; a SHA-256 would take twice as long. Raises `CorruptModel`."""
    found = 0
    for chunk in read_chunks(path):
        found = zlib.crc32(chunk, found)
    return found


def _seal(folder: Path) -> None:
    """Write the manifest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "crc32": _checksum(path)}
        for path in files
    }
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2), encoding="utf-8")


def _install(unfinished: Path, folder: Path) -> None:
    """Rename a complete folder to its final name.

    Replace an existing damaged folder; keep an existing complete one.
    """
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was first, or the existing folder is damaged.
        if _is_whole(folder):
            return
        _move_away(folder)
        unfinished.rename(folder)


def _move_away(folder: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    with contextlib.suppress(FileNotFoundError):  # another process may have moved it
        folder.rename(aside / folder.name)
    shutil.rmtree(aside, ignore_errors=True)


def _remove_abandoned(cache_dir: Path) -> None:
    for path in cache_dir.glob(f"{_UNFINISHED}*"):
        if path.stat().st_mtime < time.time() - _ABANDONED_S:
            shutil.rmtree(path, ignore_errors=True)
