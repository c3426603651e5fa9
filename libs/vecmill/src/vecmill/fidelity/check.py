"""Checking an engine against a reference, over texts, whoever shares the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from vecmill.engines.base import Engine
from vecmill.fidelity.answers import Reader, answer_in_company
from vecmill.fidelity.comparison import Comparison, ScoreComparison, compare_answers
from vecmill.fidelity.questions import make_questions
from vecmill.fidelity.reference import Reference
from vecmill.models import ModelDescription


@dataclass(frozen=True, slots=True)
class FidelityReport:
    """What was compared with what, and how far apart they are.

    `comparison` is a `ScoreComparison` for rerankers and classifiers, a `Comparison` for all others.
    """

    model: str
    engine: str
    precision: str
    reference: str
    comparison: Comparison | ScoreComparison

    def is_within(self, tolerance: float) -> bool:
        """Whether no number is off by more; where the reference's are larger than 1, by more of the largest.

        fp32 has seven digits, of large numbers as of small ones.
        """
        found = self.comparison
        return found.largest_difference <= tolerance * max(1.0, found.scale)

    def lines(self) -> list[str]:
        """The report for a terminal."""
        return [
            f"{self.model}: engine {self.engine}, {self.precision}, against {self.reference}",
            *self.comparison.lines(),
        ]


def check_fidelity(
    description: ModelDescription,
    engine: Engine,
    reference: Reference,
    texts: Sequence[str],
    *,
    seed: int = 0,
) -> FidelityReport:
    """Ask `engine` what its task makes of `texts`, in batches of random company, and compare the answers.

    Where many engines are checked over the same texts, `keep_answers` makes a reference that is asked once.
    """
    questions = make_questions(description, texts)
    found = answer_in_company(engine, Reader.load(description), questions, seed=seed)
    return FidelityReport(
        model=description.name,
        engine=engine.info.name,
        precision=engine.info.precision,
        reference=reference.name,
        comparison=compare_answers(description.task, questions, found, reference.answer(questions)),
    )
