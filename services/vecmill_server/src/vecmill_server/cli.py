"""`vecmill serve`, which the library's command line finds through an entry point."""

from typing import Any

import click

from vecmill.config import MillConfig
from vecmill_server.options import build_settings, settings_options
from vecmill_server.settings import ServerSettings


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

    A MODEL is a directory, or owner/name on a hub; without any, those of the environment variable
    VECMILL_MODEL, or the embedded all-MiniLM-L6-v2. Several share the cores, each with a queue and limits of
    its own. Either all of them are served, or none.
    """
    # Imported here, so that `vecmill --help` and other commands do not wait for a server's imports.
    from vecmill_server.logs import configure_logging
    from vecmill_server.runner import exit_status, run_server
    from vecmill_server.start import load_service

    settings = build_settings(ServerSettings, values)
    config = build_settings(MillConfig, values)
    configure_logging(settings)
    service = load_service(models, settings, config)
    context.exit(exit_status(is_clean=run_server(service, click.echo)))
