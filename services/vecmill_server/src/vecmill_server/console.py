"""The program `vecmill-server`: the program `vecmill`, with `serve` as its default command."""

import sys

import click

from vecmill.commands.main import main as vecmill

# Options of the program itself; other options are those of `serve`.
PROGRAM_OPTIONS = ("--version",)


def main() -> None:
    """Run the command that the command line names, or else `serve`."""
    arguments = sys.argv[1:]
    known = (*PROGRAM_OPTIONS, *vecmill.list_commands(click.Context(vecmill)))
    if not arguments or arguments[0] not in known:
        arguments = ["serve", *arguments]
    vecmill.main(arguments, prog_name="vecmill-server")
