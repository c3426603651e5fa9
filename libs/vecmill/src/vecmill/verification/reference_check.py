"""The check of an engine's outputs against a reference, over texts in random batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from vecmill.engines.base import Engine
from vecmill.models import ModelDescription
from vecmill.verification.check_inputs import make_check_inputs
from vecmill.verification.comparison import EmbeddingComparison, ScoreComparison, compare_outputs
from vecmill.verification.model_outputs import ModelProcessor, compute_in_batches
from vecmill.verification.reference import Reference


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The differences between an engine and a reference.

    `comparison` is a `ScoreComparison` for rerankers and classifiers, an `EmbeddingComparison` for other
    models.
    """

    model: str
    engine: str
    precision: str
    reference: str
    comparison: EmbeddingComparison | ScoreComparison

    def is_within(self, tolerance: float) -> bool:
        """Return whether the largest difference is at most `tolerance`.

        If the largest reference value exceeds 1, the tolerance is relative to this value, since fp32 has
        seven significant digits.
        """
        found = self.comparison
        return found.largest_difference <= tolerance * max(1.0, found.scale)

    def lines(self) -> list[str]:
        """Return the report as lines for a terminal."""
        return [
            f"{self.model}: engine {self.engine}, {self.precision}, against {self.reference}",
            *self.comparison.lines(),
        ]


def compare_with_reference(
    description: ModelDescription,
    engine: Engine,
    reference: Reference,
    texts: Sequence[str],
    *,
    seed: int = 0,
) -> VerificationReport:
    """Compare the outputs of `engine` for `texts`, in random batches, with the outputs of `reference`.

    To check several engines over the same texts, make a reference with `store_outputs`, which computes only
    once.
    """
    inputs = make_check_inputs(description, texts)
    found = compute_in_batches(engine, ModelProcessor.load(description), inputs, seed=seed)
    return VerificationReport(
        model=description.name,
        engine=engine.info.name,
        precision=engine.info.precision,
        reference=reference.name,
        comparison=compare_outputs(description.task, inputs, found, reference.outputs_for(inputs)),
    )
