"""Keeps the SHA-256 of large files on disk, so that a start need not read them again.

A digest is kept under the device and the inode of its file, with the file's size and its times of
modification and of change. The kernel sets the time of change, and no program can set it back, so a digest is
valid as long as all of these are the same. Times have a coarse resolution: the digest of a file that was
changed a moment ago is not kept. Sources: the index of git, and its documentation of "racy" entries.

The folder is trusted as the prepared models beside it are: whoever can write there can change these too.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vecmill.values.json_text import decode_json

FOLDER = "digests"

SETTLED_S = 5.0
"""How long ago a file must have changed to be trusted: a file system may store times in steps of 2 s."""


def recall_digest(
    path: Path, cache_dir: Path, read: Callable[[], str], *, clock: Callable[[], float] = time.time
) -> str:
    """Return the kept digest of a file, or the result of `read`, which is kept then.

    `clock` returns the seconds since 1970. A folder that cannot be written is no error. Raises `OSError` if
    the file is missing, and any error of `read`.
    """
    state = _state(path)
    kept = _kept_file(state, cache_dir)
    found = _find(state, kept)
    if found is not None:
        return found
    began_s = clock()
    digest = read()
    is_settled = max(state["modified_ns"], state["changed_ns"]) / 1e9 < began_s - SETTLED_S
    if is_settled and _state(path) == state:
        with contextlib.suppress(OSError):
            keep_document(kept, state | {"sha256": digest})
    return digest


def has_digest(path: Path, cache_dir: Path) -> bool:
    """Return whether the digest of a file is kept, so that nobody has to read the file."""
    try:
        state = _state(path)
    except OSError:
        return False
    return _find(state, _kept_file(state, cache_dir)) is not None


def _kept_file(state: dict[str, Any], cache_dir: Path) -> Path:
    return cache_dir / FOLDER / f"{state['device']}-{state['inode']}.json"


def _find(state: dict[str, Any], kept: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        found = decode_json(kept.read_bytes())
        digest = found.pop("sha256", None) if isinstance(found, dict) else None
        if found == state and isinstance(digest, str):
            return digest
    return None


def _state(path: Path) -> dict[str, Any]:
    found = path.stat()
    return {
        "device": found.st_dev,
        "inode": found.st_ino,
        "size": found.st_size,
        "modified_ns": found.st_mtime_ns,
        "changed_ns": found.st_ctime_ns,
    }


def keep_document(path: Path, document: dict[str, Any]) -> None:
    """Write a file whole or not at all, since other processes may read it. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
