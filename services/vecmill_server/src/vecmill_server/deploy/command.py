"""The command `vecmill deploy render`, found by the library's command line through an entry point."""

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vecmill_server.base.options import ValueChoice

if TYPE_CHECKING:
    from vecmill_server.deploy.deployed_server import DeployedServer
    from vecmill_server.deploy.rendering import Rendering


class Target(StrEnum):
    """Where a server is to run."""

    COMPOSE = "compose"
    HELM = "helm"
    RAY = "ray"
    SYSTEMD = "systemd"
    TERRAFORM = "terraform"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def deploy() -> None:
    """Write the files that run a server elsewhere."""


@deploy.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--target", type=ValueChoice(Target), required=True, help="Where the server is to run.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The output directory, one for each server; by default ./TARGET.",
)
@click.option(
    "--force", is_flag=True, help="Replace files that were changed by hand or belong to another server."
)
def render(file: Path, target: Target, output: Path | None, force: bool) -> None:
    """Write the files of one target, made from the configuration file FILE of `vecmill serve`.

    The table [deploy] of FILE has the image, the cores, the memory and so on. After a change of FILE, run the
    same command again.
    """
    from vecmill_server.deploy.deployed_server import read_server
    from vecmill_server.deploy.rendering import write_files

    folder = output or Path(target)
    server = read_server(file)
    rendering = render_target(target, server, folder)
    written = write_files(
        folder, rendering.files, server=server.name, own_changes=rendering.own_changes, force=force
    )
    for verb, names in (("wrote", written.written), ("removed", written.removed)):
        for name in names:
            click.echo(f"{verb} {folder / name}")
    if written.unchanged:
        click.echo(f"unchanged: {len(written.unchanged)} files in {folder}")
    for note in rendering.notes:
        click.echo(f"note: {note}")
    click.echo("Next:")
    for command in rendering.commands:
        click.echo(f"  {command}")


def render_target(target: Target, server: "DeployedServer", folder: Path) -> "Rendering":
    """Return the files of a target; `folder` is named in the commands. Raises `InvalidConfig`."""
    module = import_module(f"vecmill_server.deploy.{target}_target")
    render_files: Callable[[DeployedServer, Path], Rendering] = module.render_files
    return render_files(server, folder)
