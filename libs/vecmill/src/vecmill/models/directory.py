"""Reads files of a model directory, and refuses paths outside it.

The hub client's cache is the one exception, because its files are links:

    models--owner--name/snapshots/<commit>/config.json -> models--owner--name/blobs/<digest>
"""

import json
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel

MAX_JSON_BYTES = 16 * 2**20  # far above any settings file
MAX_TOKENIZER_BYTES = 256 * 2**20


def find_file(directory: Path, name: str) -> Path | None:
    """Return the path of `name` under `directory`, or `None` if there is no such file.

    Raises `CorruptModel` if the name or a link leads out of the directory.
    """
    path = directory / name
    if not _is_inside(directory.resolve(), path.resolve()):
        raise CorruptModel(
            f"{path} leads out of the model directory. Copy the model with its links resolved (`cp -rL`)."
        )
    return path if path.is_file() else None


def _is_inside(directory: Path, file: Path) -> bool:
    if file.is_relative_to(directory):
        return True
    snapshots = directory.parent
    return snapshots.name == "snapshots" and file.parent == snapshots.parent / "blobs"


def read_json(directory: Path, name: str, *, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read the JSON file `name`; `None` if there is no such file.

    Raises `CorruptModel` if the file cannot be read, is too large or is not JSON.
    """
    path = find_file(directory, name)
    if path is None:
        return None
    try:
        if path.stat().st_size > max_bytes:
            raise CorruptModel(f"{path} is larger than {max_bytes >> 20} MiB, the limit for such a file.")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptModel(f"{path} cannot be read as JSON: {error}. Download the model again.") from error


def read_object(directory: Path, name: str, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any] | None:
    """Read a file as `read_json` does. Raises `CorruptModel` also if the file is not an object."""
    document = read_json(directory, name, max_bytes=max_bytes)
    if document is not None and not isinstance(document, dict):
        raise CorruptModel(f"{directory / name} must hold a JSON object.")
    return document


def require_object(directory: Path, name: str) -> dict[str, Any]:
    """Read a file as `read_object` does. Raises `CorruptModel` also if the file is missing."""
    document = read_object(directory, name)
    if document is None:
        raise CorruptModel(f"{directory / name} is missing. Download the model again.")
    return document
