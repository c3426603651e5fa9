"""Command-line options that several commands share."""

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
