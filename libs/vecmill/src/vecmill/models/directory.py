"""Reads files of a model directory within limits, and refuses paths outside it.

Every value of a directory is checked where it is read (`models.config_fields`). But the directory also goes
through libraries, and a check may be missing. Nothing that a stranger wrote may end a process that serves
other models, so the outermost functions that load a model run inside `load_failures`.

The hub client's cache is the one exception, because its files are links. Large files may be links to links,
because the models of a cache share them:

    models--owner--name/snapshots/<commit>/config.json -> models--owner--name/blobs/<digest>
    models--owner--name/blobs/<digest> -> blobs/<first two digits of the hash>/<hash>

Source of the rules: huggingface_hub 2.4, `utils/_shared_blobs.py`.
"""

import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, LoadFailed, SetupError, VecmillError, one_line
from vecmill.hardware.system_calls import NotRegular, open_regular
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill.values.json_text import decode_long_json

_SHOWN_CHARACTERS = 100
# The name of a file that the models of a cache share: a hash of its content.
_SHARED = re.compile("[0-9a-f]{64}")
_STRUCTURE = (b",", b"[", b"{")  # one of these begins or separates each value, apart from the first


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The largest file that is read, in bytes, and the most values and nested levels of a JSON document.

    A value of two bytes takes 70 bytes of memory, so the number of values bounds the memory of a document.
    Commas and brackets within strings count as values too.
    """

    max_bytes: int
    max_values: int
    max_depth: int = 64


# Above the settings of published models, whose largest files list 100,000 labels twice, or 100,000 tensors.
SETTINGS_LIMITS = FileLimits(max_bytes=16 * 2**20, max_values=300_000)
MAX_TEMPLATE_BYTES = 2**20


def find_file(directory: Path, name: str) -> Path | None:
    """Return the path of `name` under `directory`, or `None` if there is no such file.

    Raises `CorruptModel` if the name or a link leads out of the directory, for names and links that cannot be
    followed, and for anything but a regular file.
    """
    shown = ascii(name[:_SHOWN_CHARACTERS])
    if not name.isprintable():  # a NUL character, half a surrogate pair, or an escape sequence of terminals
        raise CorruptModel(f"{directory} names the file {shown}, which cannot be the name of a file.")
    path = directory / name
    try:
        is_inside, is_file = _is_inside(directory.resolve(), path.resolve()), _is_file(path)
    except (OSError, RuntimeError) as error:  # the name is too long, or the links are a loop
        reason = error.strerror if isinstance(error, OSError) else error
        raise CorruptModel(f"{directory}: the file {shown} cannot be opened: {reason}.") from error
    if not is_inside:
        raise CorruptModel(
            f"{path} leads out of the model directory. Copy the model with its links resolved (`cp -rL`)."
        )
    if not is_file and path.exists():
        raise CorruptModel(f"{path} is not a regular file.")
    return path if is_file else None


def _is_file(path: Path) -> bool:
    """Return whether a path is a regular file. Raises `OSError` if it cannot be followed.

    `Path.is_file` returns False for such a path since Python 3.14.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


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


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes`. A larger file is not read.

    `path` is a result of `find_file`. Raises `CorruptModel`.
    """
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            content = b"" if found.st_size > max_bytes else file.read(max_bytes + 1)
    except NotRegular as error:
        raise CorruptModel(f"{path} is not a regular file.") from error
    except OSError as error:
        raise CorruptModel(f"{path} cannot be read: {error.strerror}.") from error
    if max(found.st_size, len(content)) > max_bytes:
        raise _too_large(path, max_bytes)
    return content


def check_size(path: Path, max_bytes: int) -> None:
    """Raise `CorruptModel` if the file `path` is larger than `max_bytes`, before anything reads it."""
    if path.stat().st_size > max_bytes:
        raise _too_large(path, max_bytes)


def _too_large(path: Path, max_bytes: int) -> CorruptModel:
    return CorruptModel(f"{path} is larger than {max_bytes >> 20} MiB, the limit for such a file.")


def read_text(path: Path, max_bytes: int) -> str:
    """Return the content of a text file as `read_file` does. Raises `CorruptModel`."""
    try:
        return read_file(path, max_bytes).decode("utf-8")
    except ValueError as error:
        raise CorruptModel(f"{path} cannot be read: {one_line(error)}. Download the model again.") from error


def read_json(directory: Path, name: str, *, limits: FileLimits = SETTINGS_LIMITS) -> Any:
    """Read the JSON file `name`; `None` if there is no such file.

    Raises `CorruptModel` if the file cannot be read, exceeds `limits` or is not JSON.
    """
    path = find_file(directory, name)
    if path is None:
        return None
    return parse_json(path, read_file(path, limits.max_bytes), limits)


def parse_json(path: Path, content: bytes, limits: FileLimits = SETTINGS_LIMITS) -> Any:
    """Return the value of `content`, the JSON document in `path`. Raises as `read_json`."""
    check_values(path, content, limits)
    try:
        document = decode_long_json(content.decode("utf-8"))
    except ValueError as error:
        raise CorruptModel(
            f"{path} cannot be read as JSON: {one_line(error)}. Download the model again."
        ) from error
    if _depth_exceeds(document, limits.max_depth):
        raise CorruptModel(f"{path} has more than {limits.max_depth} levels of nested values.")
    return document


def check_values(path: Path, content: bytes, limits: FileLimits) -> None:
    """Raise `CorruptModel` if `content`, the JSON document in `path`, has more values than `limits` allow."""
    if sum(map(content.count, _STRUCTURE)) > limits.max_values:
        raise CorruptModel(f"{path} has more than {limits.max_values} values, the limit for such a file.")


def _depth_exceeds(document: Any, most: int) -> bool:
    level = [document]
    for _ in range(most + 1):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def read_object(directory: Path, name: str, *, limits: FileLimits = SETTINGS_LIMITS) -> dict[str, Any] | None:
    """Read a file as `read_json` does. Raises `CorruptModel` also if the file is not an object."""
    document = read_json(directory, name, limits=limits)
    return None if document is None else check_object(directory / name, document)


def check_object(path: Path, document: object) -> dict[str, Any]:
    """Return `document`, the JSON object in `path`. Raises `CorruptModel` for other values."""
    if not isinstance(document, dict):
        raise CorruptModel(f"{path} must hold a JSON object.")
    return document


def require_object(directory: Path, name: str) -> dict[str, Any]:
    """Read a file as `read_object` does. Raises `CorruptModel` also if the file is missing."""
    document = read_object(directory, name)
    if document is None:
        raise CorruptModel(f"{directory / name} is missing. Download the model again.")
    return document


logger = logging.getLogger(__name__)


@contextmanager
def load_failures(path: Path) -> Iterator[None]:
    """Turn any exception but `SetupError` into `LoadFailed`, which names `path`, a directory or a file.

    Interruptions pass. An error of a request or an engine becomes a `LoadFailed` too, because no client
    caused it. The log has the traceback, at the level debug.
    """
    try:
        yield
    except SetupError:
        raise
    except VecmillError as error:
        raise LoadFailed(f"{path} could not be loaded: {error.message}") from error
    except INTERRUPTIONS:
        raise
    except BaseException as error:
        logger.debug("loading %s failed", path, exc_info=error)
        raise LoadFailed(
            f"{path} could not be loaded ({_describe(error)}). It may be damaged; the log has the details at "
            "the level debug."
        ) from error


def _describe(error: BaseException) -> str:
    """Return the class and the message of an exception."""
    shown = one_line(error)
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
