"""The command-line options of `vecmill ray embed`."""

import sys
from typing import Any

import click

from vecmill.commands.embed.options import ENGINE_OPTIONS, TEXT_OPTIONS
from vecmill_ray.extras import require_extra

BLOCK_ROWS = 4096


@click.command()
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", required=True, metavar="FOLDER", help="The folder of the output.")
@TEXT_OPTIONS
@click.option("--query", help="The query, if INPUT is a database.")
@click.option("--key-column", help="A column of the query that sorts its rows, best a unique indexed column.")
@ENGINE_OPTIONS
@click.option(
    "--actors",
    type=click.IntRange(min=1),
    help="The number of actors, each with a model. Default: as many as the cluster has room for.",
)
@click.option(
    "--block-rows",
    type=click.IntRange(min=1),
    default=BLOCK_ROWS,
    show_default=True,
    help="The rows of an output file, which are computed again if an actor dies.",
)
@click.option("--shared-files", is_flag=True, help="Local paths are mounted on all nodes.")
def embed(source: str, output: str, **options: Any) -> None:
    """Embed the texts of INPUT on a Ray cluster, into a folder of Parquet files.

    INPUT is a file or a folder of JSON lines, CSV or Parquet, such as s3://bucket/folder, or a database. The
    same command, run again after any interruption, continues with the finished files.
    """
    with require_extra("bulk"):
        from vecmill_ray.bulk.bulk_options import parse_options
        from vecmill_ray.bulk.run import run_with_progress

    sys.exit(run_with_progress(parse_options(source, output, options)))
