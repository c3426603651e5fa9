"""Reads files of a model directory, and refuses paths outside it.

The hub client's cache is the one exception, because its files are links. Large files may be links to links,
because the models of a cache share them:

    models--owner--name/snapshots/<commit>/config.json -> models--owner--name/blobs/<digest>
    models--owner--name/blobs/<digest> -> blobs/<first two digits of the hash>/<hash>

Source of the rules: huggingface_hub 2.4, `utils/_shared_blobs.py`.
"""

import json
import re
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel

MAX_JSON_BYTES = 16 * 2**20  # far above any settings file
MAX_TOKENIZER_BYTES = 256 * 2**20

_SHOWN_CHARACTERS = 100
# The name of a file that the models of a cache share: a hash of its content.
_SHARED = re.compile("[0-9a-f]{64}")


def find_file(directory: Path, name: str) -> Path | None:
    """Return the path of `name` under `directory`, or `None` if there is no such file.

    Raises `CorruptModel` if the name or a link leads out of the directory, and for names and links that
    cannot be followed.
    """
    shown = ascii(name[:_SHOWN_CHARACTERS])
    if not name.isprintable():  # a NUL character, half a surrogate pair, or an escape sequence of terminals
        raise CorruptModel(f"{directory} names the file {shown}, which cannot be the name of a file.")
    path = directory / name
    try:
        is_inside, is_file = _is_inside(directory.resolve(), path.resolve()), path.is_file()
    except (OSError, RuntimeError) as error:  # the name is too long, or the links are a loop
        reason = error.strerror if isinstance(error, OSError) else error
        raise CorruptModel(f"{directory}: the file {shown} cannot be opened: {reason}.") from error
    if not is_inside:
        raise CorruptModel(
            f"{path} leads out of the model directory. Copy the model with its links resolved (`cp -rL`)."
        )
    return path if is_file else None


def _is_inside(directory: Path, file: Path) -> bool:
    if file.is_relative_to(directory):
        return True
    snapshots = directory.parent
    repository = snapshots.parent
    if snapshots.name != "snapshots":
        return False
    if file.parent == repository / "blobs":
        return True
    return _is_shared(file) and file.parents[1] == repository.parent / "blobs"


def _is_shared(file: Path) -> bool:
    """Return whether a path is that of a file that the models of a cache share."""
    return _SHARED.fullmatch(file.name) is not None and file.parent.name == file.name[:2]


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
