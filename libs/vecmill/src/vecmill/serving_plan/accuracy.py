"""The measured accuracy of a plan."""

from dataclasses import dataclass

from vecmill.values.engine_plan import EnginePlan
from vecmill.vectors.scores import cosine_at


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The differences between a plan's outputs and those of `reference`, over `texts` texts or pairs.

    `largest_difference` is over all values, and `scale` is the largest value of the reference. `cosine_min`
    and `cosine_mean` are over embeddings, `None` if the outputs are scores. `kept` is the share of nearest
    neighbours, best documents or best labels that are the same, `None` if there were too few texts.
    """

    reference: str
    texts: int
    largest_difference: float
    scale: float
    cosine_min: float | None
    cosine_mean: float | None
    kept: float | None

    @property
    def worst_cosine(self) -> float:
        """The cosine of the worst text. For scores, `cosine_at` computes it from the largest difference."""
        if self.cosine_min is not None:
            return self.cosine_min
        return cosine_at(self.largest_difference, self.scale)


def kind_of(plan: EnginePlan) -> tuple[str, str | None, str | None]:
    """Return the kind of a plan: engine, device and precision, which determine the accuracy."""
    return plan.engine, plan.device, plan.precision
