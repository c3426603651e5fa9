"""A real server whose supervisor counts shorter times.

Run as a program: `hasty_supervisor.py NAME=SECONDS... OPTION...`. A name is that of a constant of
`process.supervisor`.
"""

import sys

from vecmill.commands.main import main as run_command
from vecmill_server.process import supervisor


def main(arguments: list[str]) -> None:
    """Serve with the constants, and the options of `vecmill serve` after them."""
    constants = [
        given for given in arguments if not given.startswith("-") and given.partition("=")[0].isupper()
    ]
    for given in constants:
        name, _, value = given.partition("=")
        assert isinstance(getattr(supervisor, name), float)
        setattr(supervisor, name, float(value))
    run_command(["serve", *arguments[len(constants) :]], prog_name="vecmill")


if __name__ == "__main__":
    main(sys.argv[1:])
