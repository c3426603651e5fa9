"""The worker process that loads, checks and measures one engine for `vecmill optimize`.

The worker reads requests as JSON lines from standard input, and writes a JSON line for each:

    {"do": "find_capabilities", "engine": "onnx"}     devices and precisions
    {"do": "load", "setup": {...}, "plan": {...}}     load time and memory
    {"do": "store_reference", "file": ..., ...}       number of texts, and time of a single text
    {"do": "check", "file": ..., "texts": ...}        accuracy
    {"do": "measure", "max_batch_tokens": ..., ...}   speed

An error is {"error": "a sentence"}. The worker exits at the end of its input. The output of engines is
redirected to standard error, so that standard output holds only the responses.
"""

import asyncio
import gc
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TextIO, TypeVar

import numpy as np

from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.scheduler import Ask
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines import find_engine, load_engine
from vecmill.engines.base import Engine
from vecmill.errors import VecmillError
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.memory import resident_mb
from vecmill.models import ModelDescription, ModelLocation
from vecmill.requests import Priority
from vecmill.serving_plan.plans import JsonObject, read_plan, write_accuracy
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Embedding, SparseEmbedding
from vecmill.values.engine_plan import CostModel, EnginePlan
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill.values.observer import Observer
from vecmill.vectors import dense
from vecmill.verification.comparison import compare_with_reference
from vecmill.verification.model_outputs import CheckInputs, ModelProcessor, compute_singly, make_check_inputs
from vecmill.verification.reference import LoadedReference, StoredReference, store_outputs
from vecmill.verification.self_check import Samples, start_engine


def save_reference_outputs(reference: StoredReference, file: Path) -> None:
    """Write the name and the outputs of `reference`, in order, without the inputs."""
    arrays: dict[str, Any] = {"name": np.array(reference.name)}
    for index, output in enumerate(reference.outputs):
        if isinstance(output, SparseEmbedding):
            arrays[f"columns_{index}"] = output.columns
            arrays[f"values_{index}"] = output.values
        else:
            arrays[f"dense_{index}"] = dense(output)
    np.savez(file, allow_pickle=False, **arrays)


def load_reference_outputs(file: Path, inputs: CheckInputs) -> StoredReference:
    """Read the reference, with its outputs for `inputs`, from `file`."""
    with np.load(file, allow_pickle=False) as arrays:
        outputs = tuple(_read(arrays, index) for index in range(len(inputs)))
        return StoredReference(str(arrays["name"]), inputs, outputs)


def _read(arrays: Any, index: int) -> Embedding:
    if f"columns_{index}" in arrays:
        return SparseEmbedding(arrays[f"columns_{index}"], arrays[f"values_{index}"])
    found: Embedding = arrays[f"dense_{index}"]
    return found


T = TypeVar("T")

REFERENCE = "{engine} {precision}, each text alone"
# The timeout of a text, longer than its wait in a very slow measurement.
PATIENCE_S = 600.0
MOST_TOKENS = 10**9
# The bounds of the number of texts of the reference.
FEWEST_CHECKED, MOST_CHECKED = 40, 300
SINGLE_PROBES = 8


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The common settings of all workers of a run: the model, the texts, the machine's cores, the cache.

    `graph` is the exported graph, relative to the model's directory, for models that are exported graphs.
    """

    model: str
    name: str
    graph: str | None
    texts_file: str
    cores: int
    cache_dir: str

    def describe(self) -> ModelDescription:
        """Return the description of the model."""
        return describe_model(ModelLocation(self.name, Path(self.model), graph=self.graph))

    def texts(self) -> list[str]:
        """Read the texts for checks and measurements."""
        texts: list[str] = json.loads(Path(self.texts_file).read_text(encoding="utf-8"))
        return texts


class LoadedEngine:
    """An engine with a loaded model, and the texts as token sequences."""

    def __init__(
        self, setup: WorkerSetup, description: ModelDescription, engine: Engine, cost: CostModel
    ) -> None:
        self._setup = setup
        self._description = description
        self._engine = engine
        self._cost = cost
        self._processor = ModelProcessor.load(description)
        self._texts = setup.texts()
        inputs = make_check_inputs(description, self._texts)
        self._sequences = sorted((self._processor.tokenize(item) for item in inputs), key=len)
        self._is_warm = False

    @classmethod
    def load(cls, setup: WorkerSetup, plan: EnginePlan) -> tuple[Self, JsonObject]:
        """Load an engine as a mill does, and return it with the load time and memory. Raises `SetupError`."""
        began = time.perf_counter()
        description = setup.describe()
        engine = load_engine(description, plan, cores=setup.cores, cache_dir=Path(setup.cache_dir))
        cost = start_engine(
            description,
            engine,
            Samples.of_texts(Tokenizer.load(description), description),
            CoreBudget(setup.cores),
        )
        load_s = time.perf_counter() - began
        loaded = cls(setup, description, engine, cost)
        return loaded, {"load_s": load_s, "memory_mb": resident_mb()}

    def store_reference(self, file: str, budget_s: float) -> JsonObject:
        """Write the engine's outputs for single texts, for as many texts as fit into `budget_s`."""
        single_s = self._probe_single_s()
        count = max(FEWEST_CHECKED, min(MOST_CHECKED, round(budget_s / single_s)))
        texts = self._texts[:count]
        info = self._engine.info
        reference = LoadedReference(
            REFERENCE.format(engine=info.name, precision=info.precision),
            lambda inputs: compute_singly(self._engine, self._processor, inputs),
        )
        save_reference_outputs(store_outputs(reference, self._description, texts), Path(file))
        return {"texts": len(texts), "single_s": single_s}

    def check(self, file: str, texts: int) -> JsonObject:
        """Compare the outputs for the first `texts` texts, in random batches, with the reference."""
        asked = self._texts[:texts]
        inputs = make_check_inputs(self._description, asked)
        reference = load_reference_outputs(Path(file), inputs)
        report = compare_with_reference(self._description, self._engine, reference, asked)
        return write_accuracy(report.accuracy)

    def measure(self, max_batch_tokens: int | None, texts: int, single_texts: int) -> JsonObject:
        """Measure the speed on the lanes of a server, over the same texts of all lengths each time."""
        if not self._is_warm:
            asyncio.run(self._time_all(max_batch_tokens, texts))
            self._is_warm = True
        gc.collect()
        took_s = asyncio.run(self._time_all(max_batch_tokens, texts))
        latency_s = asyncio.run(self._time_single(max_batch_tokens, single_texts))
        return {"texts_per_s": len(self._sample(texts)) / took_s, "latency_s": latency_s}

    async def _time_all(self, max_batch_tokens: int | None, texts: int) -> float:
        """Return the seconds that all texts take if they are submitted at once."""
        sequences = self._sample(texts)
        dispatcher = self._start_dispatcher(max_batch_tokens)
        try:
            began = time.perf_counter()
            await asyncio.gather(*(_submit(dispatcher, sequence) for sequence in sequences))
            return time.perf_counter() - began
        finally:
            await dispatcher.close()

    async def _time_single(self, max_batch_tokens: int | None, texts: int) -> float:
        """Return the median seconds of a single text on an idle machine."""
        dispatcher = self._start_dispatcher(max_batch_tokens)
        times_s = []
        try:
            for sequence in self._sample(texts):
                began = time.perf_counter()
                await _submit(dispatcher, sequence)
                times_s.append(time.perf_counter() - began)
        finally:
            await dispatcher.close()
        return statistics.median(times_s)

    def _start_dispatcher(self, max_batch_tokens: int | None) -> Dispatcher:
        config = MillConfig(
            batch=BatchConfig(max_batch_tokens=max_batch_tokens),
            queue=QueueConfig(max_queue_tokens=MOST_TOKENS, target_wait_s=math.inf, timeout_s=math.inf),
            hang_s=PATIENCE_S,
        )
        dispatcher = Dispatcher(
            self._engine,
            config.sized_for(self._engine.info),
            budget=CoreBudget(self._setup.cores),
            observer=Observer(),
            cost=self._cost,
        )
        dispatcher.start()
        return dispatcher

    def _sample(self, count: int) -> Sequence[TokenSequence]:
        """Return at most `count` of the texts, spread evenly over all lengths."""
        return sample_evenly(self._sequences, count)

    def _probe_single_s(self) -> float:
        asyncio.run(self._time_single(None, SINGLE_PROBES))
        return asyncio.run(self._time_single(None, SINGLE_PROBES))


def sample_evenly(values: Sequence[T], count: int) -> Sequence[T]:
    """Return `count` of `values`, evenly spaced, or all values if there are fewer."""
    total = len(values)
    if total <= count:
        return values
    return [values[(2 * place + 1) * total // (2 * count)] for place in range(count)]


class RequestHandler:
    """The handler of requests, which holds the loaded engine."""

    def __init__(self) -> None:
        self._loaded: LoadedEngine | None = None
        self._actions: Mapping[str, Callable[..., JsonObject]] = {
            "find_capabilities": self._find_capabilities,
            "load": self._load,
            "store_reference": lambda **details: self._engine.store_reference(**details),
            "check": lambda **details: self._engine.check(**details),
            "measure": lambda **details: self._engine.measure(**details),
        }

    def answer(self, request: Mapping[str, Any]) -> JsonObject:
        """Return the response to one request, or its error."""
        details = dict(request)
        try:
            return self._actions[details.pop("do")](**details)
        except VecmillError as error:
            return {"error": error.message}
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # of an engine: the run continues without it
            return {"error": f"{type(error).__name__}: {error}"}

    @property
    def _engine(self) -> LoadedEngine:
        if self._loaded is None:
            raise RuntimeError("no engine is loaded")
        return self._loaded

    def _find_capabilities(self, engine: str) -> JsonObject:
        found = find_engine(engine).find_capabilities()
        return {
            "devices": {device: list(offered) for device, offered in found.devices.items()},
            "length_multiples": list(found.length_multiples),
        }

    def _load(self, setup: JsonObject, plan: JsonObject) -> JsonObject:
        self._loaded, figures = LoadedEngine.load(WorkerSetup(**setup), read_plan(plan))
        return figures


async def _submit(dispatcher: Dispatcher, sequence: TokenSequence) -> None:
    # Without keys of their own, waiting texts with the same tokens would be computed once.
    alone = replace(sequence, key=b"%d:" % id(sequence) + sequence.key)
    await dispatcher.submit([alone], Ask(Priority.INTERACTIVE))


def _take_standard_output() -> TextIO:
    """Return standard output as a file, and redirect all later output of the process to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Answer requests until the end of standard input."""
    answers = _take_standard_output()
    handler = RequestHandler()
    for line in sys.stdin:
        answers.write(json.dumps(handler.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
