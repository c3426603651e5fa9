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

from vecmill.commands.embed.options import (
    CHUNK_OPTIONS,
    ENGINE_OPTIONS,
    STORE_OPTIONS,
    TEXT_OPTIONS,
)


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The output file: .parquet, .npy or .jsonl.",
)
@click.option(
    "--update",
    "updates",
    is_flag=True,
    help="Replace an output that exists, and embed only texts that it does not have. For .parquet files.",
)
@STORE_OPTIONS
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
def embed(corpus: Path, output: Path | None, address: str | None, **options: Any) -> None:
    """Embed the texts or pictures of CORPUS into another file or into a store.

    CORPUS is a file of JSON lines, CSV or Parquet, or a folder of text files or
    of pictures.

    Vectors are in the order of the input. The output gets its name when it is complete. Until then finished
    parts are kept in a folder beside it, and if the command is stopped, the same command continues with them.

    With --to, a collection of a store is brought up to date: only rows that have changed are embedded.
    """
    from vecmill.commands.embed.run import parse_options, run_with_progress
    from vecmill.commands.embed.store_run import refuse_store_options, run_to_store

    if (output is None) == (address is None):
        raise click.UsageError("Name an output file with -o, or a collection of a store with --to.")
    if output is None:
        assert address is not None
        if options["updates"]:
            raise click.UsageError("--update is for files (-o). With --to a collection is always updated.")
        sys.exit(run_to_store(corpus, address, options))
    refuse_store_options(options)
    sys.exit(run_with_progress(parse_options(corpus, output, options)))
