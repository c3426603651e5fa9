"""The command `vecmill embed`, which embeds a file of texts or pictures of any size into one of embeddings.

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
@click.option(
    "--picture-folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The folder that paths of pictures are relative to and do not leave. Default: that of CORPUS.",
)
@CHUNK_OPTIONS
@ENGINE_OPTIONS
@click.option(
    "--server", help="The address of a server that embeds the texts, such as http://127.0.0.1:7997."
)
@click.option("--api-key", envvar="VECMILL_API_KEY", show_envvar=True, help="The API key of the server.")
def embed(corpus: Path, output: Path, **options: Any) -> None:
    """Embed the texts or pictures of CORPUS into another file.

    CORPUS is a file of JSON lines, CSV or Parquet, or a folder of pictures.

    Vectors are in the order of the input. The output gets its name when it is complete. Until then finished
    parts are kept in a folder beside it, and if the command is stopped, the same command continues with them.
    """
    from vecmill.commands.embed.run import parse_options, run_with_progress

    sys.exit(run_with_progress(parse_options(corpus, output, options)))
