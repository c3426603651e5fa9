"""Who is compared in `bench.engines`: our engines, and what people use without them.

Each is loaded in a process of its own (`rigs.remote_process`) and answers by rows, rates and latencies.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bench.rigs import ORACLE_BATCH, remote_process, run_in_threads, sorted_batches
from support.exported_models import export_graph, pool_mean, quantize, without_weights
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES, find_engine
from vecmill.hardware.memory import resident_mb
from vecmill.models import ModelLocation, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import DEFAULT_BATCH_TOKENS, EnginePlan
from vecmill.vectors import dense
from vecmill.verification.model_outputs import ModelProcessor, compute_in_batches, make_check_inputs
from vecmill.verification.precision_gate import load_gated_engine

CPU = "cpu"
SEED = 20_260_114
CALLS = 21  # of which the median is the latency
NAIVE_GRAPH = "onnx/model_quantized.onnx"
ORACLE, NAIVE = "sentence-transformers", "onnxruntime quantize_dynamic"


class Contestant(Protocol):
    """Computes rows of texts."""

    def rows(self, texts: Sequence[str]) -> FloatArray:
        """(texts, dim), for the accuracy."""
        ...

    def rate(self, texts: Sequence[str], threads: int) -> float:
        """Texts a second, tokenising included, by `threads` cores."""
        ...

    def latency_ms(self, texts: int, tokens: int) -> float:
        """The median of calls with so many texts of so many tokens each, by all cores."""
        ...

    def memory_mb(self) -> float | None:
        """Proportional memory of the process."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant before it is loaded: `load(cache_dir)` in a process of its own.

    With `checkout` the code of the project there is loaded, in place of this one.
    """

    engine: str
    precision: str
    load: Callable[[Path], Contestant]
    checkout: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.engine} {self.precision}" + (" before" if self.checkout else "")

    @contextmanager
    def start(self, cache_dir: Path) -> Iterator[Callable[..., Any]]:
        """Load it; give the function that calls its methods by name. Raises `SetupError`."""
        with code_of(self.checkout), remote_process(self.load, cache_dir / self.name) as ask:
            yield ask


@contextmanager
def code_of(checkout: Path | None) -> Iterator[None]:
    """Let processes that are spawned in the block import the project from `checkout`, if there is one."""
    kept = sys.path[:]
    if checkout is not None:
        folders = ("libs/vecmill/src", "services/vecmill_server/src", "tests")
        sys.path[:0] = [str(checkout / folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = kept


class EngineContestant:
    """One of our engines as a server has it, without a server: narrow lanes side by side, or a wide call."""

    def __init__(self, location: ModelLocation, plan: EnginePlan, cores: int, cache_dir: Path) -> None:
        description = describe_model(location)
        self._description = description
        self._engine = load_gated_engine(description, plan, cores=cores, cache_dir=cache_dir)
        self._engine.warm_up()
        self._tokenizer = Tokenizer.load(description)

    def rows(self, texts: Sequence[str]) -> FloatArray:
        inputs = make_check_inputs(self._description, texts)
        reader = ModelProcessor(self._description, self._tokenizer)
        answers = compute_in_batches(self._engine, reader, inputs, seed=SEED)
        return np.concatenate([*map(dense, answers)])

    def rate(self, texts: Sequence[str], threads: int) -> float:
        narrow = self._engine.info.lane_widths[0]
        began = time.perf_counter()
        sequences = self._tokenizer.encode(texts, prompt=self._description.default_prompt)
        tokenized_s = time.perf_counter() - began
        budget = self._engine.info.batch_tokens or DEFAULT_BATCH_TOKENS
        batches = sorted_batches(sequences, budget)
        return len(texts) / (
            tokenized_s
            + run_in_threads(lambda batch: self._engine.run(batch, width=narrow), batches, threads)
        )

    def latency_ms(self, texts: int, tokens: int) -> float:
        ids = _draw_ids(texts, tokens, self._description.vocab_size)
        batch = Batch.of([TokenSequence.of(row.tolist()) for row in ids])
        wide = self._engine.info.lane_widths[-1]
        return _median_ms(lambda: self._engine.run(batch, width=wide))

    def memory_mb(self) -> float | None:
        return resident_mb()


class OracleContestant:
    """`SentenceTransformer.encode` as its users call it: eager torch, which sorts by length itself."""

    def __init__(self, location: ModelLocation, cores: int, cache_dir: Path) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        self._torch = torch
        self._cores = cores
        self._model = SentenceTransformer(str(location.directory), device=CPU).float().eval()
        self._model.encode(["warm up"] * ORACLE_BATCH)

    def rows(self, texts: Sequence[str]) -> FloatArray:
        return np.asarray(self._encode(texts), np.float32)

    def rate(self, texts: Sequence[str], threads: int) -> float:
        self._torch.set_num_threads(threads)
        began = time.perf_counter()
        self._encode(texts)
        return len(texts) / (time.perf_counter() - began)

    def latency_ms(self, texts: int, tokens: int) -> float:
        self._torch.set_num_threads(self._cores)
        ids = self._torch.from_numpy(_draw_ids(texts, tokens, self._model.tokenizer.vocab_size))
        types, mask = self._torch.zeros_like(ids), self._torch.ones_like(ids)

        def call() -> None:
            with self._torch.inference_mode():
                self._model({"input_ids": ids, "token_type_ids": types, "attention_mask": mask})

        return _median_ms(call)

    def memory_mb(self) -> float | None:
        return resident_mb()

    def _encode(self, texts: Sequence[str]) -> Any:
        return self._model.encode(list(texts), batch_size=ORACLE_BATCH)


@dataclass(frozen=True, slots=True)
class LoadEngine:
    """Loads `EngineContestant`; can be sent to another process."""

    location: ModelLocation
    plan: EnginePlan
    cores: int

    def __call__(self, cache_dir: Path) -> Contestant:
        return EngineContestant(self.location, self.plan, self.cores, cache_dir)


@dataclass(frozen=True, slots=True)
class LoadOracle:
    """Loads `OracleContestant`; can be sent to another process."""

    location: ModelLocation
    cores: int

    def __call__(self, cache_dir: Path) -> Contestant:
        return OracleContestant(self.location, self.cores, cache_dir)


def list_entries(folder: Path, cores: int) -> list[Entry]:
    """The oracle, the table to beat, and each installed engine in each of its precisions.

    `folder` gets a copy of the embedded model whose graph is quantised as it is usually done.
    """
    embedded = locate_model(None)
    entries = [
        Entry(ORACLE, "fp32", LoadOracle(embedded, cores)),
        Entry(NAIVE, "int8", LoadEngine(quantize_naively(embedded, folder), EnginePlan(), cores)),
    ]
    for name, entry in ENGINES.items():
        offered = find_engine(name).find_capabilities().devices.get(CPU, ()) if entry.is_installed else ()
        entries += [
            Entry(name, precision, LoadEngine(embedded, EnginePlan(name, precision, CPU), cores))
            for precision in offered
        ]
    return entries


def add_earlier(entries: Sequence[Entry], checkout: Path) -> list[Entry]:
    """Return the entries, and after each of our engines the same of another checkout."""
    found = []
    for entry in entries:
        found.append(entry)
        if entry.engine in ENGINES:
            found.append(replace(entry, checkout=checkout.resolve()))
    return found


def quantize_naively(location: ModelLocation, folder: Path) -> ModelLocation:
    """The model exported by torch and quantised by ONNX Runtime's own tool, served as it is."""
    copy = without_weights(location.directory, folder / "naive")
    graph = export_graph(location.directory, folder / "exported.onnx", "BertModel", finish=pool_mean)
    quantized = copy / NAIVE_GRAPH
    quantized.parent.mkdir(parents=True, exist_ok=True)
    quantize(graph, quantized, per_channel=True)
    return locate_model(copy)


def _draw_ids(texts: int, tokens: int, vocabulary: int) -> Any:
    return np.random.default_rng(SEED).integers(0, vocabulary, (texts, tokens))


def _median_ms(call: Callable[[], object]) -> float:
    times_s = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - began)
    return statistics.median(times_s) * 1e3
