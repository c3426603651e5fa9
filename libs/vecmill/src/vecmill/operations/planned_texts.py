"""The inputs of a request with the plan by which they are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from vecmill.operations.computation import Work
from vecmill.operations.loaded_model import TextPlan
from vecmill.requests import TextOrIds


@dataclass(frozen=True, slots=True)
class PlannedTexts:
    """Inputs of a request, and how they are read. `sizes` are their characters, prompts included."""

    plan: TextPlan
    inputs: Sequence[TextOrIds]
    sizes: Sequence[int]

    @classmethod
    def of(cls, plan: TextPlan, inputs: Sequence[TextOrIds]) -> "PlannedTexts":
        """Count the characters of the inputs. Token ids have no prompt."""
        extra = len(plan.prompt)
        if not extra:
            return cls(plan, inputs, [*map(len, inputs)])
        return cls(plan, inputs, [len(item) + extra * isinstance(item, str) for item in inputs])

    def select(self, indices: Sequence[int]) -> "PlannedTexts":
        """Return some of the inputs."""
        inputs, sizes = self.inputs, self.sizes
        return PlannedTexts(self.plan, [inputs[each] for each in indices], [sizes[each] for each in indices])

    def work(self) -> Work:
        """Return the computation of all inputs."""
        plan, inputs = self.plan, self.inputs
        return Work(
            plan.side,
            self.sizes,
            partial(plan.encode_in_slices, inputs),
            plan.truncation,
            encode_now=partial(plan.encode_now, inputs),
        )
