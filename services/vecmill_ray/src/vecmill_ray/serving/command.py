"""The command `vecmill ray serve`."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import click

from vecmill_ray.extras import require_extra
from vecmill_ray.serving.ray_settings import RaySettings
from vecmill_server.base.options import build_settings, settings_options


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
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
    settings = build_settings(RaySettings, values)
    # Imported here, so that `vecmill ray --help` does not wait for the import of Ray.
    with require_extra("serve"):
        from vecmill_ray.serving.running import run_application, wait_until_stopped

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
