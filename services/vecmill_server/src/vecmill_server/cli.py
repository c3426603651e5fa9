"""The command `vecmill serve`, found through an entry point, and the program `vecmill-server`."""

import sys
from typing import Any

import click

from vecmill.commands.main import main as vecmill
from vecmill.config import MillConfig
from vecmill_server.options import build_settings, settings_options
from vecmill_server.settings import ServerSettings

STANDARD_OUTPUT = 1

# Options of the program itself; other options are those of `serve`.
_PROGRAM_OPTIONS = ("--version",)


@click.command(
    context_settings={
        "auto_envvar_prefix": "VECMILL",
        "show_default": True,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    }
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


def main() -> None:
    """Run the program `vecmill-server`: the program `vecmill`, with `serve` as its default command."""
    arguments = sys.argv[1:]
    known = (*_PROGRAM_OPTIONS, *vecmill.list_commands(click.Context(vecmill)))
    if not arguments or arguments[0] not in known:
        arguments = ["serve", *arguments]
    vecmill.main(arguments, prog_name="vecmill-server")
