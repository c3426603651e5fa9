"""The command-line options that every command for embedding files has."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import click

from vecmill.commands.options import CACHE_DIR, PRECISIONS, TRUST
from vecmill.requests import Purpose
from vecmill.values.output_dtype import OutputDtype

PURPOSES = [purpose.value for purpose in Purpose]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _joined(*decorators: Decorator) -> Decorator:
    """Return a decorator that adds several options, in this order."""
    return lambda command: reduce(lambda decorated, add: add(decorated), reversed(decorators), command)


# The columns to read, and the settings of the embeddings.
TEXT_OPTIONS = _joined(
    click.option("--model", help="A directory, or a model on a hub. Default: the embedded model."),
    click.option(
        "--text-column", help="The column of the texts. Default: text, or the only column of strings."
    ),
    click.option("--id-column", help="The column of ids, copied to the output. Default: id, if it exists."),
    click.option("--copy-column", "copied_columns", multiple=True, help="Also copy this column. Repeatable."),
    click.option("--skip-invalid", "skips_invalid", is_flag=True, help="Skip rows without a valid text."),
    click.option("--prompt-name", help="Use the model's prompt with this name."),
    click.option("--purpose", type=click.Choice(PURPOSES), help="Use the model's prompt for this purpose."),
    click.option(
        "--dimensions", type=click.IntRange(min=1), help="Cut embeddings to this number of dimensions."
    ),
    click.option(
        "--dtype",
        type=click.Choice(
            ["float32", *(kind.value for kind in OutputDtype if kind is not OutputDtype.FLOAT)]
        ),
        default="float32",
        show_default=True,
        help="The type of the written numbers. The binary types hold eight dimensions in a byte.",
    ),
)

# The engine that computes the embeddings.
ENGINE_OPTIONS = _joined(
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="A configuration file of vecmill serve: embed as that server does. --model is then one of its "
        "models. Options given here go first.",
    ),
    click.option("--engine", help="The engine. Default: the engine that would serve the model."),
    click.option("--precision", type=click.Choice(PRECISIONS), help="The precision of the engine."),
    click.option("--device", help="The device of the engine. Default: the best that it finds."),
    click.option("--cores", type=click.IntRange(min=1), help="The number of cores to use. Default: all."),
    CACHE_DIR,
    TRUST,
)
