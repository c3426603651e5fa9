"""The log of downloads on standard error, for programs that a person watches."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def show_downloads() -> Iterator[None]:
    """Show the log of downloads on standard error: the progress if there is no bar, and warnings."""
    log = logging.getLogger("vecmill.models")
    handler, level = logging.StreamHandler(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
