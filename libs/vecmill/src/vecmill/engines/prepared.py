"""Prepared models on disk: graphs that ONNX Runtime has optimised, with weights packed for this processor.

    cache_dir/<fingerprint>-<ONNX Runtime>-<processor>/
        model.onnx       the optimised graph
        model.weights    its weights, as they are and packed; mapped, so every session shares one copy
        manifest.json    size and CRC-32 of every other file: torn writes are looked for, not forgers

A folder is filled under another name and renamed when it is whole. It is not flushed to disk, which
takes longer than all the rest: what a power failure tears, the manifest tells at the next start.
Processes that start at the same time each fill one of their own; whoever renames first wins, and the
others use that. Every start checks the manifest; a damaged folder is moved aside and filled again.
Files that a running process has mapped outlive their names.
"""

import contextlib
import hashlib
import json
import logging
import platform
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
_ABANDONED_S = 3600.0  # no model takes an hour to prepare: whoever left this is gone

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A whole folder. `temporary` owns it where it could not be kept; call `close` when done."""

    folder: Path
    temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The graph, to be opened without further optimisation."""
        return self.folder / MODEL_FILE

    def close(self) -> None:
        """Remove the folder if it was a temporary one."""
        if self.temporary is not None:
            self.temporary.cleanup()


def prepare_model(cache_dir: Path, name: str, fill: Callable[[Path], None]) -> PreparedModel:
    """The prepared model `name` in `cache_dir`; `fill` writes its files into a folder if need be.

    Where the folder cannot be written, a temporary one is used and a warning logged. Raises
    `InvalidConfig` if that cannot be written either.
    """
    folder = cache_dir / name
    if _is_whole(folder):
        return PreparedModel(folder)
    try:
        _prepare_kept(folder, fill)
    except OSError as error:
        return _prepare_temporary(cache_dir, error, fill)
    return PreparedModel(folder)


def processor_name() -> str:
    """A short name for this type of processor: packed weights depend on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    traits: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "flags", "Features", "CPU implementer", "CPU part"):
            traits.setdefault(key.strip(), value.strip())
    described = json.dumps(traits or platform.processor(), sort_keys=True)
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:8]}"


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
        "The prepared model cannot be kept in %s (%s), so each start prepares it anew. "
        "Name a folder that can be written as the cache.",
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
            f"{tempfile.gettempdir()} ({failure.strerror}). Name a folder with room as the cache."
        ) from failure
    except BaseException:
        temporary.cleanup()
        raise
    return PreparedModel(Path(temporary.name), temporary)


def _is_whole(folder: Path) -> bool:
    """Whether all files are there and what the manifest says."""
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
        if not manifest:
            raise ValueError("its manifest names no file")
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
    """The CRC-32 of a file, which takes less than half as long as a digest. Raises `CorruptModel`."""
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
    """Give a whole folder its name. A damaged one in its place goes; a whole one stays."""
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was first, or what is there is damaged.
        if _is_whole(folder):
            return
        _move_away(folder)
        unfinished.rename(folder)


def _move_away(folder: Path) -> None:
    aside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    with contextlib.suppress(FileNotFoundError):  # another process may be doing the same
        folder.rename(aside / folder.name)
    shutil.rmtree(aside, ignore_errors=True)


def _remove_abandoned(cache_dir: Path) -> None:
    for path in cache_dir.glob(f"{_UNFINISHED}*"):
        if path.stat().st_mtime < time.time() - _ABANDONED_S:
            shutil.rmtree(path, ignore_errors=True)
