"""The prepared models in a cache, by model, size and last use, and their removal.

A prepared folder is not removed while an engine has its files open: engines lock them for reading
(`engines.mapped_model`). The time of modification of the folder is that of its last use, which
`engines.prepared` sets. The names of the models are kept beside the folders, since the folders are named by
fingerprints:

    cache_dir/models/<fingerprint>.json
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vecmill.engines.owned_folders import OwnedFolder, remove_abandoned
from vecmill.engines.prepared import PREPARED_FILE, UNFINISHED
from vecmill.hardware.system_calls import lock_file
from vecmill.models.fingerprint import fingerprint_model
from vecmill.values.json_text import decode_json

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

NAMES = "models"
UNKNOWN = "(unknown)"


@dataclass(frozen=True, slots=True)
class KeptModel:
    """A prepared folder of the model `name`. `variant` is the rest of its own name, `used_at` a Unix time."""

    folder: Path
    name: str
    variant: str
    size_bytes: int
    used_at: float
    is_open: bool


def keep_name(description: "ModelDescription", cache_dir: Path) -> None:
    """Keep the name of a model that has a prepared folder in `cache_dir`, if the cache can be written."""
    with contextlib.suppress(OSError):
        fingerprint = fingerprint_model(description, cache_dir)
        file = cache_dir / NAMES / f"{fingerprint}.json"
        if file.exists() or not any(cache_dir.glob(f"{fingerprint}-*")):
            return
        file.parent.mkdir(exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"name": description.name}), "utf-8")
        draft.replace(file)


def list_kept(cache_dir: Path) -> list[KeptModel]:
    """Return the prepared models in `cache_dir`, the largest first."""
    found = [_describe(folder) for folder in _prepared_folders(cache_dir)]
    return sorted(found, key=lambda each: (-each.size_bytes, each.folder.name))


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder that no other folder has too."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            total += status.st_size // max(1, status.st_nlink) if path.is_file() else 0
    return total


def choose_kept(
    kept: Sequence[KeptModel], *, now: float, unused_s: float | None, most_bytes: int | None
) -> list[KeptModel]:
    """Return what to remove: what was not used for `unused_s`, and the longest unused above `most_bytes`.

    What is open stays, and counts. Without both limits, all others are chosen.
    """
    free = sorted((each for each in kept if not each.is_open), key=lambda each: each.used_at)
    if unused_s is None and most_bytes is None:
        return free
    chosen = [each for each in free if unused_s is not None and now - each.used_at >= unused_s]
    left_bytes = sum(each.size_bytes for each in kept) - sum(each.size_bytes for each in chosen)
    for each in free:
        if most_bytes is not None and left_bytes > most_bytes and each not in chosen:
            chosen.append(each)
            left_bytes -= each.size_bytes
    return chosen


def remove_kept(kept: KeptModel) -> bool:
    """Remove a prepared model unless an engine has it open. Return whether it is removed."""
    with contextlib.ExitStack() as locks:
        if not _lock_all(kept.folder, locks.callback):
            return False
        # Under its name nobody finds half of it.
        aside = OwnedFolder.make(kept.folder.parent, UNFINISHED)
        with contextlib.suppress(FileNotFoundError):  # another process may have removed it
            kept.folder.rename(aside.path / kept.folder.name)
        aside.remove()
        return True


def remove_rest(cache_dir: Path) -> None:
    """Remove what is kept beside prepared models, such as digests and samples, and abandoned folders."""
    remove_abandoned(cache_dir, UNFINISHED, unlocked=True)
    for path in _rest(cache_dir):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def rest_bytes(cache_dir: Path) -> int:
    """Return the bytes of what `remove_rest` would remove."""
    return sum(size_of(path) if path.is_dir() else path.lstat().st_size for path in _rest(cache_dir))


def _prepared_folders(cache_dir: Path) -> list[Path]:
    if not cache_dir.is_dir():
        return []
    return [path for path in cache_dir.iterdir() if (path / PREPARED_FILE).is_file()]


def _rest(cache_dir: Path) -> Iterator[Path]:
    names = {NAMES, "checks", "digests", "samples", "tensorrt"}
    if cache_dir.is_dir():
        for path in cache_dir.iterdir():
            if path.name in names or path.name.endswith(".proof.json"):
                yield path


def _describe(folder: Path) -> KeptModel:
    fingerprint, _, variant = folder.name.partition("-")
    name = UNKNOWN
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        name = str(decode_json((folder.parent / NAMES / f"{fingerprint}.json").read_bytes())["name"])
    with contextlib.ExitStack() as locks:
        is_open = not _lock_all(folder, locks.callback)
    return KeptModel(folder, name, variant, size_of(folder), folder.stat().st_mtime, is_open)


def _lock_all(folder: Path, at_end: Callable[..., object]) -> bool:
    """Lock the files of a folder until `at_end` calls what it gets. Return whether nobody has one open."""
    for path in folder.rglob("*"):
        if path.is_file():
            try:
                file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                continue
            at_end(os.close, file)
            try:
                lock_file(file)
            except BlockingIOError:
                return False
            except OSError:  # some network file systems have no locks
                continue
    return True
