"""The command `vecmill compare`, which tells what changes if one model takes the place of another."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from vecmill.commands.label_options import label_options, take_labels
from vecmill.commands.options import CACHE_DIR


@click.command()
@click.argument("first")
@click.argument("second")
@click.option(
    "--texts",
    type=click.Path(path_type=Path),
    required=True,
    help="Texts of yours: JSON lines, CSV or Parquet with a column of texts, or a .txt with one per line.",
)
@click.option(
    "--neighbours-at",
    multiple=True,
    type=click.IntRange(min=1),
    default=[1, 10, 100],
    show_default=True,
    help="The numbers of nearest neighbours to compare. Repeatable.",
)
@click.option(
    "--stored-texts",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="The texts of your store, which would be embedded again.",
)
@label_options
@click.option("--api-key", envvar="VECMILL_API_KEY", show_envvar=True, help="The API key of servers.")
@CACHE_DIR
@click.option("--seed", default=0, show_default=True, help="The seed of samples and intervals.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(first: str, second: str, texts: Path, as_json: bool, **options: Any) -> None:
    """Tell what changes from the model FIRST to the model SECOND: neighbours, order, speed and size.

    A model is a directory, a model on a hub, or the address of a server, which may end in #NAME. With
    labelled texts both are evaluated on them too.
    """
    from vecmill.commands.embed.progress import StepProgress
    from vecmill.evaluation.model_change import compare as compare_models

    named = take_labels(options)
    three = (named["queries"], named["qrels"], named["corpus"]) if "queries" in named else None
    with closing(StepProgress()) as progress:
        found = compare_models(
            first, second, texts, labels=named.get("pairs", three), on_progress=progress.tell, **options
        )
    click.echo(json.dumps(found.document(), indent=2) if as_json else found.markdown(), nl=as_json)
