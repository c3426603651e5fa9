"""The program `vecmill-server`: the program `vecmill`, with `serve` as its default command."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import click

from vecmill.commands.main import main as vecmill

# Options of the program itself; other options are those of `serve`.
PROGRAM_OPTIONS = ("--version",)


def main() -> None:
    """Run the command that the command line names, or else `serve`."""
    arguments = sys.argv[1:]
    known = (*PROGRAM_OPTIONS, *vecmill.list_commands(click.Context(vecmill)))
    if not arguments or (arguments[0] not in known and not _is_misspelt(arguments[0], known)):
        arguments = ["serve", *arguments]
    vecmill.main(arguments, prog_name="vecmill-server")


def _is_misspelt(word: str, commands: Sequence[str]) -> bool:
    """Return whether `word` looks like a command, and is neither an option nor a model."""
    is_other = word.startswith("-") or "/" in word or Path(word).exists()
    return not is_other and bool(get_close_matches(word, commands, 1, 0.7))
