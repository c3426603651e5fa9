"""The answers to compare with: those of a model's own library if it is installed, else our fp32 engine's."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from vecmill.engines import load_engine
from vecmill.errors import UnsupportedModel
from vecmill.fidelity.answers import Answers, Reader, answer_alone
from vecmill.fidelity.oracles import Answer, load_oracle, oracle_library
from vecmill.fidelity.questions import Questions, make_questions
from vecmill.models import ModelDescription
from vecmill.plan import EnginePlan, Precision


class Reference(Protocol):
    """Something that answers questions as they should be answered."""

    @property
    def name(self) -> str:
        """What it is, for a report."""
        ...

    def answer(self, questions: Questions) -> Answers:
        """The answers to `questions`, in order."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedReference:
    """A reference with its model in memory. Satisfies `Reference`."""

    name: str
    compute: Answer

    def answer(self, questions: Questions) -> Answers:
        """As `Reference.answer`; computed anew each time."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # theirs to heed
            return self.compute(questions)


@dataclass(frozen=True, slots=True)
class KeptReference:
    """A reference's answers, computed once for many checks over the same texts. Satisfies `Reference`."""

    name: str
    questions: Questions
    answers: Answers

    def answer(self, questions: Questions) -> Answers:
        """As `Reference.answer`. Raises `ValueError` for other questions than those kept."""
        if questions != self.questions:
            raise ValueError("the answers that were kept are those to other questions")
        return self.answers


def keep_answers(reference: Reference, description: ModelDescription, texts: Sequence[str]) -> KeptReference:
    """Compute what `reference` answers where `description`'s model is checked with `texts`."""
    questions = make_questions(description, texts)
    return KeptReference(reference.name, questions, reference.answer(questions))


def load_reference(description: ModelDescription, cache_dir: Path) -> LoadedReference:
    """The best reference that this machine has for a model. Blocks while it loads.

    Raises `UnsupportedModel` if the model's own library is installed and cannot load it.
    """
    library = oracle_library(description)
    if find_spec(library) is None:
        return _load_own(description, cache_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        name = f"{library.replace('_', '-')} {version(library)}"
        try:
            return LoadedReference(name, load_oracle(description))
        except Exception as error:
            raise UnsupportedModel(
                f"The reference, {name}, cannot load {description.directory}: {error}"
            ) from error


def _load_own(description: ModelDescription, cache_dir: Path) -> LoadedReference:
    engine = load_engine(description, EnginePlan(precision=Precision.FP32), cores=1, cache_dir=cache_dir)
    reader = Reader.load(description)
    return LoadedReference(
        "vecmill's own fp32 ONNX engine, each text alone",
        lambda questions: answer_alone(engine, reader, questions),
    )
