"""What the server is measured against, each in a process of its own that sleeps while others are measured.

A rig is loaded once and then told, round by round, over which of the texts to run.
"""

import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime

from vecmill.config import BatchConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import SetupError
from vecmill.hardware.cores import available_cores
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan

ORACLE_BATCH = 32  # sentence-transformers' own default


class Rig(Protocol):
    """Runs over some texts; says in seconds how long that took, or whatever else it measures."""

    def measure(self, texts: Sequence[str]) -> float: ...


def sorted_batches(sequences: Sequence[TokenSequence], max_batch_tokens: int) -> list[Batch]:
    """Batches of neighbours in token length, longest first, each up to `max_batch_tokens`."""
    batches: list[Batch] = []
    held: list[TokenSequence] = []
    tokens = 0
    for sequence in sorted(sequences, key=len, reverse=True):
        if held and tokens + len(sequence) > max_batch_tokens:
            batches.append(Batch.of(held))
            held, tokens = [], 0
        held.append(sequence)
        tokens += len(sequence)
    return [*batches, Batch.of(held)]


def run_in_threads(run: Callable[[Batch], object], batches: Sequence[Batch], threads: int) -> float:
    """Seconds until `threads` threads, each taking the next batch, have run them all."""
    left = iter(batches)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                batch = next(left, None)
            if batch is None:
                return
            run(batch)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


class EngineRig:
    """The engine that the server has, without a server."""

    def __init__(self, cache_dir: Path) -> None:
        description = describe_model(locate_model(None))
        self.cores = available_cores()
        self.tokenizer = Tokenizer.load(description)
        self.engine = OnnxEngine.load(description, EnginePlan(), cores=self.cores, cache_dir=cache_dir)
        self.engine.warm_up()

    def batches(self, texts: Sequence[str]) -> list[Batch]:
        return sorted_batches(self.tokenizer.encode(texts), BatchConfig().batch_tokens)


class Ceiling(EngineRig):
    """The in-process ceiling: sorted batches on as many narrow lanes as there are cores."""

    def measure(self, texts: Sequence[str]) -> float:
        return run_in_threads(self._run, self.batches(texts), self.cores)

    def _run(self, batch: Batch) -> object:
        return self.engine.run(batch, width=1)


class Tokenizing(EngineRig):
    """What tokenising the texts takes, in one thread."""

    def measure(self, texts: Sequence[str]) -> float:
        began = time.perf_counter()
        self.tokenizer.encode(texts)
        return time.perf_counter() - began


class BareSession(EngineRig):
    """The same batches straight into an `InferenceSession` over the same file."""

    def __init__(self, cache_dir: Path) -> None:
        super().__init__(cache_dir)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        path = str(self.engine.prepared_model_path)
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def measure(self, texts: Sequence[str]) -> float:
        return run_in_threads(self._run, self.batches(texts), self.cores)

    def _run(self, batch: Batch) -> object:
        feed = {
            "token_ids": batch.token_ids,
            "token_type_ids": batch.token_type_ids,
            "offsets": batch.offsets,
            "prompt_lengths": batch.prompt_lengths,
        }
        return self.session.run(None, feed)


class Oracle:
    """`SentenceTransformer.encode` as its users call it, which sorts by length itself."""

    def __init__(self, cache_dir: Path) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(str(locate_model(None).directory), device="cpu")
        self.model.encode(["warm up"] * ORACLE_BATCH)

    def measure(self, texts: Sequence[str]) -> float:
        began = time.perf_counter()
        self.model.encode(list(texts), batch_size=ORACLE_BATCH, normalize_embeddings=True)
        return time.perf_counter() - began


class WideCall(EngineRig):
    """One caller, one text at a time, on all cores: the median seconds of a call."""

    def measure(self, texts: Sequence[str]) -> float:
        width = self.engine.info.lane_widths[-1]
        times_s = []
        for sequence in self.tokenizer.encode(texts):
            began = time.perf_counter()
            self.engine.run(Batch.of([sequence]), width=width)
            times_s.append(time.perf_counter() - began)
        return statistics.median(times_s)


@dataclass(frozen=True, slots=True)
class PacedCalls:
    """Wide calls, `per_second` of them: the processor seconds that they use, waking up included."""

    rig: WideCall
    per_second: float

    def measure(self, texts: Sequence[str]) -> float:
        width = self.rig.engine.info.lane_widths[-1]
        batches = [Batch.of([sequence]) for sequence in self.rig.tokenizer.encode(texts)]
        used = time.process_time()
        for due in paces(len(batches), self.per_second):
            self.rig.engine.run(batches[due], width=width)
        return time.process_time() - used


def paces(count: int, per_second: float) -> Iterator[int]:
    """Give 0, 1, ... `count - 1`, each no sooner than it is due."""
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        yield number


def load_paced_calls(cache_dir: Path) -> PacedCalls:
    """`PacedCalls` at the pace of the idle measurement."""
    return PacedCalls(WideCall(cache_dir), per_second=10.0)


@contextmanager
def rig_process(load: Callable[[Path], Rig], cache_dir: Path) -> Iterator[Callable[[Sequence[str]], float]]:
    """Load a rig in a process of its own; give the function that measures with it."""
    with remote_process(load, cache_dir) as ask:
        yield lambda texts: float(ask("measure", list(texts)))


@contextmanager
def remote_process(load: Callable[..., object], *arguments: object) -> Iterator[Callable[..., Any]]:
    """Load something in a process of its own; give the function that calls its methods by name.

    Raises `SetupError` with the reason if that is what loading raised.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(load, arguments, theirs), daemon=True)
    process.start()
    theirs.close()  # else one that dies would leave us waiting for ever

    def ask(method: str, *details: object) -> Any:
        ours.send((method, details))
        return ours.recv()

    try:
        refusal = ours.recv()
        if refusal is not None:
            raise SetupError(refusal)
        yield ask
    finally:
        ours.close()
        process.join(timeout=30)


def _serve(load: Callable[..., object], arguments: Sequence[object], pipe: "Connection[Any, Any]") -> None:
    try:
        loaded = load(*arguments)
    except SetupError as error:
        pipe.send(error.message)
        return
    pipe.send(None)
    while True:
        try:
            method, details = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(loaded, method)(*details))


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    """The texts in an order that `seed` alone decides."""
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[index] for index in order]
