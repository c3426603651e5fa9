"""A process that has one engine and measures it: `python -m vecmill.tuning.worker`.

It reads one JSON object a line and answers each with one:

    {"do": "survey", "engine": "onnx"}                  what it finds here
    {"do": "load", "subject": {...}, "plan": {...}}     how long that took, and the memory it takes
    {"do": "keep_reference", "file": ..., ...}          how many texts it answered, and how quickly
    {"do": "check", "file": ..., "texts": ...}          the accuracy
    {"do": "measure", "max_batch_tokens": ..., ...}     the speed

An error is {"error": "a sentence"}. When its input ends, so does it; while it waits, it does nothing. What an
engine prints must not get among the answers: standard output is given to them, and the engine's goes
to standard error.
"""

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TextIO, TypeVar

from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.ticket import Share
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.cores import CoreBudget
from vecmill.engines import find_engine, load_engine
from vecmill.engines.base import Engine
from vecmill.errors import VecmillError
from vecmill.fidelity.answers import Reader, answer_alone
from vecmill.fidelity.check import check_fidelity
from vecmill.fidelity.comparison import Comparison, ScoreComparison
from vecmill.fidelity.questions import make_questions
from vecmill.fidelity.reference import LoadedReference, keep_answers
from vecmill.fidelity.selfcheck import check_engine
from vecmill.models import ModelDescription, ModelLocation, describe_model
from vecmill.observer import Observer
from vecmill.plan import EnginePlan
from vecmill.tokens import Tokenizer
from vecmill.tuning.answers_file import load_reference_answers, save_reference_answers
from vecmill.tuning.documents import Document, read_plan, write_accuracy
from vecmill.tuning.figures import Accuracy
from vecmill.tuning.machine import resident_mb
from vecmill.types import TokenSequence

T = TypeVar("T")

REFERENCE = "{engine} {precision}, each text alone"
# No text waits longer for its turn in a measurement than it would in a very slow one.
PATIENCE_S = 600.0
MOST_TOKENS = 10**9
# What the reference may take of the time for all, and between how many texts.
FEWEST_CHECKED, MOST_CHECKED = 40, 300
LONE_PROBES = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """What all workers of one run have in common: the model, the texts, the machine's cores, the cache.

    `graph` is the exported graph to run, relative to the model's directory, if that is what the model is.
    """

    model: str
    name: str
    graph: str | None
    texts_file: str
    cores: int
    cache_dir: str

    def describe(self) -> ModelDescription:
        """What the model's directory says."""
        return describe_model(ModelLocation(self.name, Path(self.model), graph=self.graph))

    def texts(self) -> list[str]:
        """The texts to check and to measure with."""
        texts: list[str] = json.loads(Path(self.texts_file).read_text(encoding="utf-8"))
        return texts


class LoadedSubject:
    """An engine with the model in it, and the texts as it reads them."""

    def __init__(self, subject: Subject, description: ModelDescription, engine: Engine, pace: float) -> None:
        self._subject = subject
        self._description = description
        self._engine = engine
        self._pace = pace
        self._reader = Reader.load(description)
        self._texts = subject.texts()
        questions = make_questions(description, self._texts)
        self._sequences = sorted((self._reader.read(question) for question in questions), key=len)
        self._is_warm = False

    @classmethod
    def load(cls, subject: Subject, plan: EnginePlan) -> tuple[Self, Document]:
        """Load an engine as a mill does, and say how long that took. Raises `SetupError`."""
        began = time.perf_counter()
        description = subject.describe()
        engine = load_engine(description, plan, cores=subject.cores, cache_dir=Path(subject.cache_dir))
        cost = engine.warm_up()
        check_engine(description, engine, Tokenizer.load(description))
        load_s = time.perf_counter() - began
        loaded = cls(subject, description, engine, 1 / cost.per_token_s)
        return loaded, {"load_s": load_s, "memory_mb": resident_mb()}

    def keep_reference(self, file: str, budget_s: float) -> Document:
        """Write what the engine answers to each text alone, to as many texts as `budget_s` is enough for."""
        lone_s = self._probe_lone_s()
        count = max(FEWEST_CHECKED, min(MOST_CHECKED, round(budget_s / lone_s)))
        texts = self._texts[:count]
        info = self._engine.info
        reference = LoadedReference(
            REFERENCE.format(engine=info.name, precision=info.precision),
            lambda questions: answer_alone(self._engine, self._reader, questions),
        )
        save_reference_answers(keep_answers(reference, self._description, texts), Path(file))
        return {"texts": len(texts), "lone_s": lone_s}

    def check(self, file: str, texts: int) -> Document:
        """How far the answers to the first `texts` texts, in random company, are from the reference's."""
        asked = self._texts[:texts]
        questions = make_questions(self._description, asked)
        reference = load_reference_answers(Path(file), questions)
        report = check_fidelity(self._description, self._engine, reference, asked)
        found = report.comparison
        return write_accuracy(_accuracy(found, report.reference))

    def measure(self, max_batch_tokens: int | None, texts: int, lone_texts: int) -> Document:
        """The speed over texts of all lengths, the same ones each time, by the lanes that a server has."""
        if not self._is_warm:
            asyncio.run(self._time_all(max_batch_tokens, texts))
            self._is_warm = True
        gc.collect()
        took_s = asyncio.run(self._time_all(max_batch_tokens, texts))
        latency_s = asyncio.run(self._time_lone(max_batch_tokens, lone_texts))
        return {"texts_per_s": len(self._sample(texts)) / took_s, "latency_s": latency_s}

    async def _time_all(self, max_batch_tokens: int | None, texts: int) -> float:
        """Seconds until texts that all wait at once are done."""
        sequences = self._sample(texts)
        dispatcher = self._start_dispatcher(max_batch_tokens)
        try:
            began = time.perf_counter()
            await asyncio.gather(*(_submit(dispatcher, sequence) for sequence in sequences))
            return time.perf_counter() - began
        finally:
            await dispatcher.close()

    async def _time_lone(self, max_batch_tokens: int | None, texts: int) -> float:
        """The median seconds of a text that has the machine to itself."""
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
            queue=QueueConfig(max_queue_tokens=MOST_TOKENS),
            hang_s=PATIENCE_S,
        )
        dispatcher = Dispatcher(
            self._engine,
            config.sized_for(self._engine.info),
            budget=CoreBudget(self._subject.cores),
            observer=Observer(),
            pace=self._pace,
        )
        dispatcher.start()
        return dispatcher

    def _sample(self, count: int) -> Sequence[TokenSequence]:
        """At most `count` of the texts, evenly over all lengths."""
        return spread(self._sequences, count)

    def _probe_lone_s(self) -> float:
        asyncio.run(self._time_lone(None, LONE_PROBES))
        return asyncio.run(self._time_lone(None, LONE_PROBES))


def spread(values: Sequence[T], count: int) -> Sequence[T]:
    """`count` of `values`, evenly from the first to the last; all of them if there are no more."""
    total = len(values)
    if total <= count:
        return values
    return [values[(2 * place + 1) * total // (2 * count)] for place in range(count)]


class Conversation:
    """Answers one request after the other."""

    def __init__(self) -> None:
        self._loaded: LoadedSubject | None = None
        self._ways: Mapping[str, Callable[..., Document]] = {
            "survey": self._survey,
            "load": self._load,
            "keep_reference": lambda **said: self._subject.keep_reference(**said),
            "check": lambda **said: self._subject.check(**said),
            "measure": lambda **said: self._subject.measure(**said),
        }

    def answer(self, request: Mapping[str, Any]) -> Document:
        """The answer to one request, or the error in its place."""
        said = dict(request)
        try:
            return self._ways[said.pop("do")](**said)
        except VecmillError as error:
            return {"error": error.message}
        except Exception as error:  # whatever an engine raises: the run goes on without it
            return {"error": f"{type(error).__name__}: {error}"}

    @property
    def _subject(self) -> LoadedSubject:
        if self._loaded is None:
            raise RuntimeError("nothing has been loaded")
        return self._loaded

    def _survey(self, engine: str) -> Document:
        survey = find_engine(engine).survey()
        return {
            "devices": {device: list(offered) for device, offered in survey.devices.items()},
            "length_multiples": list(survey.length_multiples),
        }

    def _load(self, subject: Document, plan: Document) -> Document:
        self._loaded, figures = LoadedSubject.load(Subject(**subject), read_plan(plan))
        return figures


def _accuracy(found: Comparison | ScoreComparison, reference: str) -> Accuracy:
    off, scale = found.largest_difference, found.scale
    if isinstance(found, ScoreComparison):
        return Accuracy(reference, found.inputs, off, scale, None, None, found.decisions_kept)
    return Accuracy(
        reference, found.texts, off, scale, found.cosine_min, found.cosine_mean, found.neighbours_kept
    )


async def _submit(dispatcher: Dispatcher, sequence: TokenSequence) -> None:
    # Texts with the same tokens would be computed once for all that wait.
    alone = replace(sequence, key=b"%d:" % id(sequence) + sequence.key)
    await dispatcher.submit([alone], share=Share.INTERACTIVE, timeout_s=PATIENCE_S)


def _take_standard_output() -> TextIO:
    """Standard output for us alone; whatever else writes to it writes to standard error from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Answer requests until there are no more."""
    answers = _take_standard_output()
    conversation = Conversation()
    for line in sys.stdin:
        answers.write(json.dumps(conversation.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
