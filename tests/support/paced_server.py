"""The real server with a fake engine that takes the time of a real model, and none of its processor time.

Run as a program: `paced_server.py serve OPTION...`, as `vecmill` is. What schedules calls is the same, and a
busy machine slows it down less than it would slow a model.
"""

import sys
import time
from collections.abc import Sequence

from vecmill.commands.main import main as run_command
from vecmill.engines.fake import FakeEngine
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel
from vecmill_server.process import runner
from vecmill_server.service.service import Service

# About those of the embedded model on a core of a small machine.
FIXED_S = 2e-3
PER_TOKEN_S = 3e-4


class PacedEngine(FakeEngine):
    """Sleeps as long as a model would compute."""

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Return the cost of its calls."""
        return CostModel(fixed_s=FIXED_S, per_token_s=PER_TOKEN_S)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """As the fake engine, later by the time of a call."""
        time.sleep(FIXED_S + PER_TOKEN_S * len(batch) * int(batch.lengths.max()) / width)
        return super().run(batch, width=width)


async def compute_nothing(service: Service) -> None:
    """In place of the sample texts that a server computes after its start, beside those of its clients."""


def main(arguments: list[str]) -> None:
    """Run a command of `vecmill` whose fake engine is paced."""
    FakeEngine.load = PacedEngine.load  # type: ignore[method-assign]
    runner.measure_ranges = compute_nothing  # type: ignore[attr-defined]
    run_command(arguments, prog_name="vecmill")


if __name__ == "__main__":
    main([*sys.argv[1:], "--engine", "fake"])
