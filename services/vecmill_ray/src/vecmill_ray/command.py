"""The command group `vecmill ray`, found by the library's command line through an entry point."""

from collections.abc import Mapping
from importlib import import_module

import click

# The module and the name of each subcommand. A new subcommand needs one more line here.
SUBCOMMANDS: Mapping[str, str] = {
    "embed": "vecmill_ray.bulk.command:embed",
    "serve": "vecmill_ray.serving.command:serve",
}


class RayGroup(click.Group):
    """A group of commands that are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands."""
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the subcommand with this name, `None` if there is none."""
        target = SUBCOMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(cls=RayGroup, context_settings={"help_option_names": ["-h", "--help"]})
def ray() -> None:
    """Serve models, or embed large data sets, on a Ray cluster."""
