"""What the tests of the server's parts share: the log is as it was after each test."""

import logging
from collections.abc import Iterator

import pytest

NAMES = (None, "uvicorn")
FLAGS = ("logThreads", "logMultiprocessing")


@pytest.fixture(autouse=True)
def restored_log() -> Iterator[None]:
    """Undo `configure_logging`, which commands call in the process of a test."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], [logging.getLogger(name).level for name in NAMES]
    flags = {flag: getattr(logging, flag) for flag in FLAGS}
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    for name, level in zip(NAMES, levels, strict=True):
        logging.getLogger(name).setLevel(level)
    for flag, value in flags.items():
        setattr(logging, flag, value)
