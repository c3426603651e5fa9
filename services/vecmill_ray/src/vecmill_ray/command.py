"""The command group `vecmill ray`, found by the library's command line through an entry point.

What needs Ray is imported when a command runs, so that `vecmill ray --help` does not wait for it.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from vecmill.commands.embed.options import ENGINE_OPTIONS, TEXT_OPTIONS
from vecmill.errors import MissingExtra
from vecmill.values.messages import pip_command
from vecmill_ray.serving.ray_settings import RaySettings
from vecmill_server.base.options import build_settings, naming_options, settings_options

BLOCK_ROWS = 4096


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def ray() -> None:
    """Serve models, or embed large data sets, on a Ray cluster."""


@ray.command()
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
    """Embed the texts or pictures of INPUT on a Ray cluster, into a folder of Parquet files.

    INPUT is a file or a folder of JSON lines, CSV or Parquet, such as s3://bucket/folder, or a database. The
    same command, run again after any interruption, continues with the finished files.
    """
    with require_extra("bulk"):
        from vecmill_ray.bulk.bulk_options import parse_options
        from vecmill_ray.bulk.run import run_with_progress

    sys.exit(run_with_progress(parse_options(source, output, options)))


@ray.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    required=True,
    help="The configuration file of `vecmill serve`. The models must be readable on all nodes.",
)
@click.option(
    "--address",
    help="The address of a Ray cluster, or auto; by default RAY_ADDRESS, or else a cluster on this machine.",
)
@settings_options(RaySettings)
def serve(config: Path, address: str | None, **values: Any) -> None:
    """Serve the models of a configuration file with Ray Serve.

    The address of the HTTP server is that of the file. The command runs until it receives SIGINT or SIGTERM,
    and then removes the models from the cluster.
    """
    with naming_options(click.get_current_context()):
        settings = build_settings(RaySettings, values)
    with require_extra("serve"):
        from vecmill_ray.serving.application import run_application, wait_until_stopped

    # A signal during the start ends it.
    _handle_signals(signal.default_int_handler)
    with run_application(config, settings, address) as url:
        stopping = threading.Event()
        _handle_signals(lambda *_: stopping.set())
        click.echo(f"vecmill serves with Ray on {url}")
        wait_until_stopped(stopping)


def _handle_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Import the modules of an extra in this block. Raises `MissingExtra` if a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("vecmill", "vecmill_ray", "vecmill_server"):
            raise
        command = pip_command("install", f"vecmill-ray[{extra}]")
        raise MissingExtra(f"{error.name} is not installed. The command needs an extra: {command}") from error
