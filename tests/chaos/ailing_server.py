"""A real server that can be made ill. Run as a program: `ailing_server.py TICK_S OPTION...`.

SIGUSR1 blocks the event loop in a sleep. SIGUSR2 freezes it in a call that lets no other Python code run. The
file `lost` in the working directory makes every model lose its workers, and the file `lost-NAME` the model
with that name.
"""

import itertools
import signal
import sys
import time
from pathlib import Path

from vecmill.commands.main import main as run_command
from vecmill.mill import Mill
from vecmill_server.process import watchdog


def block(*_: object) -> None:
    """Sleep for good."""
    time.sleep(1e6)


def freeze(*_: object) -> None:
    """Compute for good, and keep the interpreter's lock."""
    sum(itertools.repeat(1))


def is_lost(mill: Mill) -> bool:
    """Whether a file tells so."""
    return Path("lost").exists() or Path(f"lost-{mill.description.name}").exists()


def main(tick_s: float, options: list[str]) -> None:
    """Serve, with a watchdog that ticks at another pace."""
    watchdog.FROZEN_S *= tick_s / watchdog.TICK_S
    watchdog.TICK_S = tick_s
    Mill.is_lost = property(is_lost)  # type: ignore[assignment, method-assign]
    signal.signal(signal.SIGUSR1, block)
    signal.signal(signal.SIGUSR2, freeze)
    run_command(["serve", *options], prog_name="vecmill")


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
