"""The options that name labelled texts, which several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_FILE = click.Path(path_type=Path)

_LABELS = (
    click.option("--queries", type=_FILE, help="Queries: JSON lines with _id and text, or TSV."),
    click.option(
        "--qrels", type=_FILE, help="Right answers: TSV of query, document and relevance, or TREC's."
    ),
    click.option("--corpus", type=_FILE, help="Documents: JSON lines with _id, title and text, or TSV."),
    click.option("--pairs", type=_FILE, help="A TSV of queries and their right texts, instead of the three."),
)


def label_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in reversed(_LABELS):
        command = option(command)
    return command
