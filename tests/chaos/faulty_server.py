"""The real server over the fake engine, with an engine and, if asked, a server that misbehave.

Run as a process: `faulty_server.py SEED PLANT`. Prints its address when it is ready. PLANT is a defect
that the ledger must find: `none`, `swap` (rows of one batch change places) or `loss` (an answer is
never handed over).
"""

import random
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import replace

from chaos.storm import MARKS
from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import MillConfig, QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine, FaultScript
from vecmill.mill import Mill
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill_server.catalog import ServedModel
from vecmill_server.metrics import ServerMetrics
from vecmill_server.runner import run_server
from vecmill_server.service import assemble_service
from vecmill_server.settings import ServerSettings

PLANTED_EVERY = 40


class MoodyEngine(FakeEngine):
    """Takes a varying time for each call."""

    def __init__(self, seed: int, plant: str, faults: FaultScript) -> None:
        super().__init__(dim=384, faults=faults)
        self._dice = random.Random(seed)
        self._plant = plant
        self._served = 0
        self._counting = threading.Lock()

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """As the fake engine, up to 4 ms later."""
        with self._counting:
            pause_s = self._dice.random() * 0.004
            self._served += 1
            spoil = self._plant == "swap" and self._served % PLANTED_EVERY == 0
        time.sleep(pause_s)
        rows = super().run(batch, width=width)
        return replace(rows, values=rows.values[::-1].copy()) if spoil else rows


def plant_loss() -> None:
    """Make the dispatcher forget every so many requests."""
    resolve, seen = Dispatcher._resolve, iter(range(10**9))

    def forgetful(self: Dispatcher, requests: Iterable[QueuedRequest]) -> None:
        resolve(self, [request for request in requests if next(seen) % PLANTED_EVERY])

    Dispatcher._resolve = forgetful  # type: ignore[method-assign]


def main(seed: int, plant: str) -> None:
    """Serve until SIGTERM."""
    if plant == "loss":
        plant_loss()
    description = describe_model(locate_model())
    marks = Tokenizer.load(description).encode(sorted(MARKS))
    poison, void = (frozenset({int(sequence.token_ids[1])}) for sequence in marks)
    engine = MoodyEngine(seed, plant, FaultScript(poison=poison, nan=void, share=0.02, seed=seed))
    metrics = ServerMetrics()
    config = MillConfig(cores=2, queue=QueueConfig(max_queue_texts=400, timeout_s=20.0))
    mill = Mill(description, config, observer=metrics.observe_model("fake"), engine=engine)
    settings = ServerSettings(port=0, lame_duck_s=0.0, access_log=False)
    service = assemble_service([ServedModel("fake", mill)], settings, metrics)
    run_server(service, lambda message: print(message, flush=True))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
