"""The command `vecmill embed`, which embeds a file of texts of any size into a file of embeddings.

`vecmill.bulk` reads the rows, embeds them and writes outputs. `parts` stores each finished part in a file of
its own. When all parts are stored, `run` joins them with the copied columns.

A run that is stopped at any moment loses only the unfinished parts. The same command, run again, continues
with the stored parts.
"""

import sys
from pathlib import Path
from typing import Any

import click

from vecmill.commands.embed.options import CHUNK_OPTIONS, ENGINE_OPTIONS, TEXT_OPTIONS


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The output file: .parquet, .npy or .jsonl.",
)
@TEXT_OPTIONS
@CHUNK_OPTIONS
@ENGINE_OPTIONS
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
