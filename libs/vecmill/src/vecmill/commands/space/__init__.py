"""The command group `vecmill space`, about files of vectors and the space that their vectors are in.

`vecmill space verify` reads a sample of a file (`stored_vectors`), embeds its texts again
(`sample_embedders`), compares both (`space_verdict`), and reports what the file holds (`space_verification`).
"""

import json
import sys
from pathlib import Path
from typing import Any

import click

from vecmill.commands.embed.options import ENGINE_OPTIONS, PURPOSES

OTHER = 1


@click.group()
def space() -> None:
    """Tell whether stored vectors are those of a model."""


@space.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", help="A directory, or a model on a hub. Default: the one that FILE names.")
@click.option("--text-column", help="The column of the texts. Default: text, or the only column of strings.")
@click.option("--vector-column", help="The column of the vectors. Default: embedding, or the only list.")
@click.option(
    "--texts",
    "corpus",
    type=click.Path(path_type=Path),
    help="The file that was embedded, if FILE has no texts. Its rows must be in the order of FILE.",
)
@click.option("--prompt-name", help="The prompt that the vectors should have. Default: as FILE says.")
@click.option("--purpose", type=click.Choice(PURPOSES), help="The purpose that the vectors should have.")
@click.option(
    "--sample", "count", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Rows to check."
)
@click.option("--seed", default=0, show_default=True, help="The seed of the choice of rows.")
@ENGINE_OPTIONS
@click.option("--server", help="The address of a server that embeds, such as http://127.0.0.1:7997.")
@click.option("--api-key", envvar="VECMILL_API_KEY", show_envvar=True, help="The API key of the server.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(file: Path, as_json: bool, **options: Any) -> None:
    """Embed a sample of the texts of FILE again, and say whether its vectors are of this space.

    FILE is a .parquet, .jsonl or .npy file, as `vecmill embed` writes it, or of another program. Exits with 0
    if the vectors are those of the model, with 1 if they are not, and with 2 if that cannot be found out.
    """
    from vecmill.commands.space.space_verification import (
        describe_report,
        lay_out_report,
        parse_verify_options,
        verify_space,
    )

    report = verify_space(parse_verify_options(file, options))
    if as_json:
        click.echo(json.dumps(describe_report(report), indent=2))
    else:
        click.echo("\n".join(lay_out_report(report)))
    sys.exit(0 if report.is_of_this_space else OTHER)
