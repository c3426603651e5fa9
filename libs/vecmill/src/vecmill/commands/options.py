"""Command-line options that several commands share, and the log of their downloads."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from vecmill.values.engine_plan import Precision

# With the enumeration itself click would accept the names instead of the values of its members.
PRECISIONS = [precision.value for precision in Precision]

TRUST = click.option(
    "--trust-remote-code",
    "trusts_code",
    is_flag=True,
    help="Run the Python code in MODEL. Read the code first.",
)

TEXTS = click.option(
    "--texts", "file", type=click.File(encoding="utf-8"), help="A file with your own texts, one per line."
)

CACHE_DIR = click.option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    envvar="VECMILL_CACHE_DIR",
    show_envvar=True,
    help="The directory of prepared models.",
)


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
