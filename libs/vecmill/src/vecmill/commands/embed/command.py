"""The command-line options of `vecmill embed`."""

import sys
from pathlib import Path
from typing import Any

import click

from vecmill.commands.options import CACHE_DIR, PRECISIONS, TRUST
from vecmill.requests import Purpose
from vecmill.values.output_dtype import OutputDtype

PURPOSES = [purpose.value for purpose in Purpose]


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The output file: .parquet, .npy or .jsonl.",
)
@click.option("--model", help="A directory, or a model on a hub. Default: the embedded model.")
@click.option("--text-column", help="The column of the texts. Default: text, or the only column of strings.")
@click.option("--id-column", help="The column of ids, copied to the output. Default: id, if it exists.")
@click.option("--copy-column", "copied_columns", multiple=True, help="Also copy this column. Repeatable.")
@click.option("--skip-invalid", "skips_invalid", is_flag=True, help="Skip rows without a valid text.")
@click.option("--prompt-name", help="Use the model's prompt with this name.")
@click.option("--purpose", type=click.Choice(PURPOSES), help="Use the model's prompt for this purpose.")
@click.option("--dimensions", type=click.IntRange(min=1), help="Cut embeddings to this number of dimensions.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", *(kind.value for kind in OutputDtype if kind is not OutputDtype.FLOAT)]),
    default="float32",
    show_default=True,
    help="The type of the written numbers. The binary types hold eight dimensions in a byte.",
)
@click.option("--engine", help="The engine. Default: the engine that would serve the model.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="The precision of the engine.")
@click.option("--device", help="The device of the engine. Default: the best that it finds.")
@click.option("--cores", type=click.IntRange(min=1), help="The number of cores to use. Default: all.")
@CACHE_DIR
@TRUST
@click.option(
    "--server", help="The address of a server that embeds the texts, such as http://127.0.0.1:7997."
)
@click.option("--api-key", envvar="VECMILL_API_KEY", show_envvar=True, help="The API key of the server.")
def embed(corpus: Path, output: Path, **options: Any) -> None:
    """Embed the texts of CORPUS, a file of JSON lines, CSV or Parquet, into another file.

    Vectors are in the order of the input. The output gets its name when it is complete. Until then finished
    parts are kept in a folder beside it, and if the command is stopped, the same command continues with them.
    """
    from vecmill.commands.embed.run import parse_options, run_with_progress

    sys.exit(run_with_progress(parse_options(corpus, output, options)))
