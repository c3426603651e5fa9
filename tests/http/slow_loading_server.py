"""A real server whose models with names that begin with `slow` take an hour to load.

Run as a program: `slow_loading_server.py OPTION...`.
"""

import sys
import time

from vecmill.commands.main import main as run_command
from vecmill.engines.base import Engine
from vecmill.model_load import ModelLoad


def main(options: list[str]) -> None:
    """Serve, with a thread that loads for an hour."""
    load = ModelLoad.open_engine

    def load_slowly(self: ModelLoad) -> Engine:
        if self._description.name.startswith("slow"):
            time.sleep(3600)
        return load(self)

    ModelLoad.open_engine = load_slowly  # type: ignore[method-assign]
    run_command(["serve", *options], prog_name="vecmill")


if __name__ == "__main__":
    main(sys.argv[1:])
