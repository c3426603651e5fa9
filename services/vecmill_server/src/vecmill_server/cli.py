"""The command `vecmill serve`, found by the library's command line through an entry point."""

import os
import signal
from contextlib import suppress
from typing import Any

import click

from vecmill.config import MillConfig
from vecmill_server.options import build_settings, settings_options
from vecmill_server.options_of_others import ServeCommand
from vecmill_server.settings import ServerSettings

STANDARD_OUTPUT = 1
STANDARD_FILES = range(3)


@click.command(
    cls=ServeCommand,
    context_settings={
        "auto_envvar_prefix": "VECMILL",
        "show_default": True,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
)
@click.argument("models", metavar="[MODEL]...", nargs=-1, envvar="VECMILL_MODEL")
@settings_options(ServerSettings, MillConfig)
@click.pass_context
def serve(context: click.Context, /, models: tuple[str, ...], **values: Any) -> None:
    """Serve one MODEL or several over HTTP.

    A MODEL is a directory, or owner/name on a hub. The default is the environment variable VECMILL_MODEL, or
    else the embedded all-MiniLM-L6-v2. Several models share the cores; each has its own queue and limits. A
    model that cannot be loaded does not stop the others, except with --strict.
    """
    open_standard_files()
    end_at_signals()
    # Imported here, so that `vecmill --help` and other commands do not wait for the imports of the server.
    from vecmill_server.line_writer import LineWriter
    from vecmill_server.logs import configure_logging
    from vecmill_server.runner import run_server
    from vecmill_server.service import load_service

    settings = build_settings(ServerSettings, values)
    config = build_settings(MillConfig, values)
    log = configure_logging(settings)
    output = LineWriter(STANDARD_OUTPUT)
    try:
        service = load_service(models, settings, config)
        service.metrics.watch_log(lambda: log.dropped)
        status = run_server(service, output.write)
    finally:
        output.flush()
        log.flush()  # so that an error message is the last line
    context.exit(status)


def open_standard_files() -> None:
    """Open /dev/null as each standard file that is closed.

    Otherwise a connection or a file could get the number of the file, and log lines would be written there.
    """
    for fd in STANDARD_FILES:
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `fd`


def end_at_signals() -> None:
    """End the process with status 0 at SIGTERM and SIGHUP, until the runner handles signals.

    The first process of a container would ignore these signals without a handler. Under nohup, SIGHUP stays
    ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        with suppress(ValueError):  # this is not the main thread
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda *_: os._exit(0))
