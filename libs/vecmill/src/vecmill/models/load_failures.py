"""Turns whatever goes wrong while a model is loaded into an error of that model.

Every value of a directory is checked where it is read (`models.config_fields`). But the directory also goes
through libraries, and a check may be missing. Nothing that a stranger wrote may end a process that serves
other models, so the outermost functions that load a model run inside `load_failures`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vecmill.errors import LoadFailed, SetupError, VecmillError, one_line

logger = logging.getLogger(__name__)

_PANIC = "PanicException"  # of libraries in Rust; like `KeyboardInterrupt` it is no `Exception`


@contextmanager
def load_failures(path: Path) -> Iterator[None]:
    """Turn any exception but `SetupError` into `LoadFailed`, which names `path`, a directory or a file.

    An error of a request or an engine becomes a `LoadFailed` too, because no client caused it. The log has
    the traceback, at the level debug.
    """
    try:
        yield
    except SetupError:
        raise
    except VecmillError as error:
        raise LoadFailed(f"{path} could not be loaded: {error.message}") from error
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        logger.debug("loading %s failed", path, exc_info=error)
        raise LoadFailed(
            f"{path} could not be loaded ({_describe(error)}). It may be damaged; the log has the details at "
            "the level debug."
        ) from error


def _describe(error: BaseException) -> str:
    """Return the class and the message of an exception."""
    shown = one_line(error)
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
