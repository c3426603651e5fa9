"""What each benchmark begins and ends with: its options, a folder, its servers and rigs, and its report."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.generator import require_wrk
from bench.report import Figure, finish, warn_if_busy
from bench.rigs import Rig, rig_process
from support.server import LiveServer, live_server

# The environment that only serves, and one with every engine.
SERVE = Path(".venv/serve/bin/vecmill")
SERVE_WITH_ENGINES = Path(sys.executable).with_name("vecmill")
START_TIMEOUT_S = 900.0  # int8 weights are made at the first start

Contestant = TypeVar("Contestant")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its options, a folder that is gone at its end, and the stack of what is stopped then."""

    options: argparse.Namespace
    folder: Path
    stack: ExitStack

    @property
    def settings(self) -> dict[str, int | float | str | None]:
        """The options for the report."""
        return {
            name: value if isinstance(value, int | float | None) else str(value)
            for name, value in vars(self.options).items()
        }

    def serve(
        self,
        *arguments: object,
        name: str = "server",
        command: Sequence[str] | None = None,
        timeout_s: float = 60.0,
    ) -> LiveServer:
        """Start a server, by default the vecmill of `--serve`; its cache and log are in the folder `name`."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        server = live_server(
            place,
            arguments=[*map(str, arguments)],
            command=[str(self.options.serve)] if command is None else command,
            timeout_s=timeout_s,
        )
        return self.stack.enter_context(server)

    def rig(self, load: Callable[[Path], Rig]) -> Callable[[Sequence[str]], float]:
        """Load a rig in a process of its own."""
        return self.stack.enter_context(rig_process(load, self.folder / "cache"))

    def finish(self, name: str, title: str, figures: Sequence[Figure]) -> int:
        """Print and save the figures with the options; return the exit status."""
        return finish(name, title, figures, self.settings)


def make_parser(
    doc: str | None, *, rounds: int | None = None, seconds: int | None = None, serve: Path | None = None
) -> argparse.ArgumentParser:
    """Return a parser with the options that many benchmarks have: those whose default is given."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="How often each is measured.")
    if seconds is not None:
        parser.add_argument("--seconds", type=int, default=seconds, help="How long each load lasts.")
    if serve is not None:
        parser.add_argument("--serve", type=Path, default=serve, help="The vecmill that serves.")
    return parser


@contextmanager
def start(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    *,
    seed: int | None = None,
    needs_wrk: bool = False,
) -> Iterator[Run]:
    """Read the options, say what is about to run, and give the run. The report has the options and `seed`."""
    options = parser.parse_args(arguments)
    if seed is not None:
        options.seed = seed
    if needs_wrk:
        require_wrk()
    warn_if_busy()
    print(", ".join(f"{name} {value}" for name, value in vars(options).items()), flush=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vecmill-bench-"))
        yield Run(options, Path(folder), stack)


def take_turns(contestants: Iterable[Contestant], rounds: int) -> Iterator[tuple[bool, Contestant]]:
    """Yield each contestant in each round, and whether the round counts: one before the others warms up.

    The order is reversed from round to round.
    """
    order = list(contestants)
    for number in range(rounds + 1):
        for contestant in order[:: 1 if number % 2 else -1]:
            yield number > 0, contestant
