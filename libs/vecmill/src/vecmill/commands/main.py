"""The `vecmill` program: the group of the library's commands and of commands that other packages install.

Other distributions add commands through the entry-point group `vecmill.commands` (name -> click command), as
the server does with `serve`. The module of a command is imported only when the command runs, and by
`vecmill --help`, which shows the first line of its help. So it imports what the command computes with in the
function of the command.
"""

import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points, version

import click

from vecmill.errors import VecmillError
from vecmill.values.garbage import no_garbage_collection
from vecmill.values.messages import FIND_LINKS_HINT, find_links_hint, pip_command

ENTRY_POINT_GROUP = "vecmill.commands"

# A new command needs one more line here.
OWN_COMMANDS: Mapping[str, EntryPoint] = {
    name: EntryPoint(name, f"vecmill.commands.{target}", ENTRY_POINT_GROUP)
    for name, target in (
        ("cache", "cache:cache"),
        ("check", "check:check"),
        ("compare", "compare:compare"),
        ("describe", "describe:describe"),
        ("doctor", "doctor:doctor"),
        ("embed", "embed:embed"),
        ("engines", "engines:engines"),
        ("evaluate", "evaluate:evaluate"),
        ("optimize", "optimize:optimize"),
        ("pull", "pull:pull"),
        ("space", "space:space"),
    )
}

# The distributions to install for known commands of other distributions.
_ELSEWHERE = {
    "bench": "vecmill-server",
    "deploy": "vecmill-server",
    "ray": "vecmill-ray",
    "serve": "vecmill-server",
}


class SetupFailure(click.ClickException):
    """An error of vecmill in the form of click."""

    exit_code = 2


class CommandGroup(click.Group):
    """A group of commands that are imported when they run.

    An error of vecmill in any command becomes one sentence on standard error and exit status 2.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(_find_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command with this name, `None` if there is none."""
        # What is installed beside vecmill is not looked through for a command of its own.
        found = OWN_COMMANDS.get(cmd_name) or _find_commands().get(cmd_name)
        if found is not None:
            return _load_command(found)
        if cmd_name in _ELSEWHERE:
            distribution = _ELSEWHERE[cmd_name]
            command = pip_command("install", distribution)
            hint = find_links_hint("dist", "dist/ray") if cmd_name == "ray" else FIND_LINKS_HINT
            ctx.fail(f"`vecmill {cmd_name}` is in another package: {command} ({hint})")
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line. Raises `UsageError`, with a suggestion, for another word."""
        name = args[0]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if name in _ELSEWHERE or name.startswith("-"):
                raise
            ctx.fail(f"No such command {name!r}. {self._suggest(ctx, name)}")

    def _suggest(self, ctx: click.Context, name: str) -> str:
        from vecmill.models.location import is_model_name

        names = [*self.list_commands(ctx), *_ELSEWHERE]
        close = get_close_matches(name, names, 1)
        if close:
            return f"Did you mean {close[0]!r}?"
        if is_model_name(name):
            return f"To serve this model: {shlex.join(['vecmill', 'serve', name])}"
        return f"The commands are {', '.join(self.list_commands(ctx))}."

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, and report an error of vecmill as a sentence."""
        try:
            return super().invoke(ctx)
        except VecmillError as error:
            raise SetupFailure(error.message) from error


def _find_commands() -> dict[str, EntryPoint]:
    installed = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return {**installed, **OWN_COMMANDS}


def _load_command(entry: EntryPoint) -> click.Command:
    try:
        with no_garbage_collection():
            command = entry.load()
    except ImportError as error:
        return _broken_command(entry, str(error))
    if not isinstance(command, click.Command):
        return _broken_command(entry, f"{entry.value} is not a click command")
    return command


def _broken_command(entry: EntryPoint, reason: str) -> click.Command:
    """Return a command that reports why another command cannot be loaded, so that `--help` still works."""
    message = f"`vecmill {entry.name}` is installed but cannot be loaded: {reason}"

    @click.command(entry.name, help=message, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1)
    def explain(arguments: tuple[str, ...]) -> None:
        raise click.ClickException(message)

    return explain


def _print_version(ctx: click.Context, _parameter: click.Parameter, is_set: bool) -> None:
    if is_set and not ctx.resilient_parsing:
        click.echo(f"vecmill {version('vecmill')}")
        ctx.exit()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def main() -> None:
    """Compute embeddings and rerank documents."""
