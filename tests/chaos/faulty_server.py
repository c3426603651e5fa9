"""The real server on an inherited socket, with an engine and, if asked, a server that misbehave.

Run as a process: `faulty_server.py OPTIONS`, where OPTIONS is a `FaultyOptions` as JSON. Prints lines:
`ready`, `degraded` when a lane is lost, and at its end its last page of metrics as JSON.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from chaos.plants import plant_fault
from chaos.storm import MARKS
from support.http_server import striding_clock
from vecmill.config import MillConfig, QueueConfig, default_cache_dir
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.engines.fake import FakeEngine
from vecmill.errors import DeviceLost, InferenceFailed
from vecmill.mill import Mill, MillState
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel
from vecmill_server.app.routes.prometheus import write_text
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.process.listener import open_listener
from vecmill_server.process.runner import Runner
from vecmill_server.service.service import assemble_service
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics

WATCH_S = 0.02
# Calls of a real engine take long on a busy machine.
HANG_S = {"fake": 1.0, "real": 15.0}


@dataclass(frozen=True, slots=True)
class FaultyOptions:
    """The faults of one process. `deadly_call` is the number of the call that ends or hangs its lane.

    `plants` names defects that the check must find, of `chaos.plants.PLANTS`.
    """

    socket_fd: int
    seed: int
    timeout_s: float
    deadly_call: int | None = None
    plants: tuple[str, ...] = ()
    engine: str = "fake"
    is_faulty: bool = True

    def write(self) -> str:
        """Return the options as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> "FaultyOptions":
        """Return the options in JSON."""
        fields = json.loads(text)
        return cls(**{**fields, "plants": tuple(fields["plants"])})


# Faults that cost a call or some of its texts, and their frequency.
CALL_FAULTS = {
    "raise": 0.02,
    "foreign": 0.01,
    "exit": 0.005,
    "memory": 0.005,
    "nan": 0.005,
    "few": 0.005,
    "many": 0.005,
    "slow": 0.02,
}
DEADLY = ("device", "hang")


class FaultyEngine:
    """An engine whose calls take a varying time and fail in every way, around another engine."""

    def __init__(self, inner: Engine, options: FaultyOptions, poison: set[int], void: set[int]) -> None:
        self.info = inner.info
        self._inner = inner
        self._options = options
        self._poison = poison
        self._void = void
        self._dice = random.Random(options.seed)
        self._calls = 0
        self._drawing = threading.Lock()
        self._released = threading.Event()
        self._has_begun = False

    def begin(self) -> None:
        """Begin to fail. Before, the server checks the engine, and does not start if a call fails."""
        self._has_begun = True

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """As the inner engine."""
        return self._inner.warm_up(texts)

    def renew(self) -> None:
        """As the inner engine."""
        self._inner.renew()

    def close(self) -> None:
        """Let calls that hang return, and close the inner engine."""
        self._released.set()
        self._inner.close()

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """As the inner engine, with the faults of the options."""
        fault, pause_s = self._draw()
        time.sleep(pause_s)
        self._fail(fault)
        embeddings = self._inner.run(batch, width=width)
        if not self._options.is_faulty:
            return embeddings
        texts = [set(ids.tolist()) for ids in np.split(batch.token_ids, batch.offsets[1:-1])]
        if any(self._poison & ids for ids in texts):
            raise InferenceFailed("A text of this batch is poisonous.")
        return self._spoil(embeddings, fault, [bool(self._void & ids) for ids in texts])

    def _draw(self) -> tuple[str, float]:
        with self._drawing:
            if not self._has_begun:
                return "", 0.0
            self._calls += 1
            if self._calls == self._options.deadly_call:
                return DEADLY[self._options.seed % len(DEADLY)], 0.0
            if not self._options.is_faulty:
                return "", 0.0
            (fault,) = self._dice.choices(
                [*CALL_FAULTS, ""], [*CALL_FAULTS.values(), 1 - sum(CALL_FAULTS.values())]
            )
            return fault, 0.08 if fault == "slow" else self._dice.random() * 0.003

    def _fail(self, fault: str) -> None:
        if fault == "device":
            raise DeviceLost("planned")
        if fault == "hang":
            self._released.wait()
        if fault == "exit":
            raise SystemExit("planned")
        if fault == "raise":
            raise InferenceFailed("This call fails.")
        if fault == "foreign":
            raise ZeroDivisionError("planned")
        if fault == "memory":
            raise MemoryError("planned")

    def _spoil(self, embeddings: Embeddings, fault: str, void: list[bool]) -> Embeddings:
        values = embeddings.values.copy()
        if fault == "nan":
            values[0] = np.nan
        values[np.array(void)] = np.inf
        if fault == "few":
            values = values[:-1]
        if fault == "many":
            values = np.concatenate([values, values[:1]])
        return Embeddings.one_per_text(values, computed_tokens=embeddings.computed_tokens)


def build_engine(description: ModelDescription, options: FaultyOptions) -> FaultyEngine:
    """Return the engine of a process: the fake engine or the model's own, with faults."""
    config = MillConfig()
    if options.engine == "fake":
        inner: Engine = FakeEngine(dim=description.dim, max_tokens=description.max_tokens)
    else:
        inner = load_engine(description, config.plan(), cores=2, cache_dir=default_cache_dir())
    marks = Tokenizer.load(description).encode(sorted(MARKS))
    poison, void = ({int(sequence.token_ids[1])} for sequence in marks)
    return FaultyEngine(inner, options, poison, void)


def watch(mill: Mill) -> None:
    """Print that a lane was lost, once."""
    while mill.state in (MillState.LOADING, MillState.READY):
        time.sleep(WATCH_S)
    if mill.state is MillState.DEGRADED:
        print("degraded", flush=True)


def main(options: FaultyOptions) -> None:
    """Serve until SIGTERM."""
    for plant in options.plants:
        plant_fault(plant)
    description = describe_model(locate_model())
    metrics = ServerMetrics()
    engine = build_engine(description, options)
    queue = QueueConfig(max_queue_texts=400, timeout_s=options.timeout_s)
    mill = Mill(
        description,
        MillConfig(cores=2, hang_s=HANG_S[options.engine], queue=queue),
        observer=metrics.observe_model("chaos"),
        engine=engine,
    )
    settings = ServerSettings(fd=options.socket_fd, lame_duck_s=0.0, drain_s=20.0, access_log=False)
    service = assemble_service([ServedModel("chaos", mill)], settings, metrics)
    service = replace(service, page_clock=striding_clock())  # every scrape is of its own moment
    threading.Thread(target=watch, args=(mill,), daemon=True).start()

    def tell_ready() -> None:
        engine.begin()
        print("ready", flush=True)

    Runner(service, open_listener(settings), tell_ready).run()
    print(json.dumps({"page": write_text(metrics.copy().families()).decode()}), flush=True)


if __name__ == "__main__":
    main(FaultyOptions.read(sys.argv[1]))
