"""The real server with batches over the fake engine, slow enough to be killed in the middle of one.

Run as a process: `slow_server.py FOLDER PAUSE_S`. Prints its address when it is ready. Each engine call, of a
few texts, takes about PAUSE_S.
"""

import random
import sys
import time
from pathlib import Path

from vecmill.config import BatchConfig, MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.mill import Mill
from vecmill.models import locate_model
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.process.runner import run_server
from vecmill_server.service.service import assemble_service
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics


class SlowEngine(FakeEngine):
    """Takes a varying time for each call."""

    def __init__(self, pause_s: float) -> None:
        super().__init__(dim=384)
        self._pause_s = pause_s
        self._dice = random.Random(7)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """As the fake engine, half to one and a half `pause_s` later."""
        time.sleep(self._pause_s * (0.5 + self._dice.random()))
        return super().run(batch, width=width)


def main(folder: Path, pause_s: float) -> None:
    """Serve until SIGTERM."""
    metrics = ServerMetrics()
    config = MillConfig(cores=2, batch=BatchConfig(max_batch_tokens=64))
    engine = SlowEngine(pause_s)
    description = describe_model(locate_model())
    mill = Mill(description, config, observer=metrics.observe_model("fake"), engine=engine)
    settings = ServerSettings(port=0, lame_duck_s=0.0, access_log=False, batch_dir=folder)
    service = assemble_service([ServedModel("fake", mill)], settings, metrics)
    run_server(service, lambda message: print(message, flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
