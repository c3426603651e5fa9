"""Reading files of a model directory, and never one outside it."""

import json
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel

MAX_JSON_BYTES = 16 * 2**20  # no settings file comes near; tokenizers are not read here


def find_file(directory: Path, name: str) -> Path | None:
    """The path of `name` under `directory`, or `None` if there is no such file.

    Raises `CorruptModel` if the name or a link leads out of the directory.
    """
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise CorruptModel(
            f"{path} leads out of the model directory. Copy the model with its links resolved (`cp -rL`)."
        )
    return path if path.is_file() else None


def read_json(directory: Path, name: str) -> Any:
    """The JSON document in file `name`, or `None` if there is no such file.

    Raises `CorruptModel` if it cannot be read, is too large or is no JSON.
    """
    path = find_file(directory, name)
    if path is None:
        return None
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CorruptModel(f"{path} is larger than {MAX_JSON_BYTES >> 20} MiB; no settings file is.")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptModel(f"{path} cannot be read as JSON: {error}. Download the model again.") from error


def read_object(directory: Path, name: str) -> dict[str, Any] | None:
    """As `read_json`, for a file that must hold an object."""
    document = read_json(directory, name)
    if document is not None and not isinstance(document, dict):
        raise CorruptModel(f"{directory / name} must hold a JSON object.")
    return document
