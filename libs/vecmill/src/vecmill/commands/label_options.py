"""The options that name labelled texts, which several commands share."""

from collections.abc import Callable, MutableMapping
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


def take_labels(options: MutableMapping[str, Any]) -> dict[str, Path]:
    """Take the labelled texts out of the options of a command, and return those that were named.

    Raises `InvalidConfig` if that is neither nothing, nor the three files, nor only pairs.
    """
    from vecmill.errors import InvalidConfig

    given = {name: options.pop(name) for name in ("queries", "qrels", "corpus", "pairs")}
    named = {name: file for name, file in given.items() if file is not None}
    if set(named) not in (set(), {"pairs"}, {"queries", "qrels", "corpus"}):
        raise InvalidConfig("Name --queries, --qrels and --corpus, or only --pairs.")
    return named
