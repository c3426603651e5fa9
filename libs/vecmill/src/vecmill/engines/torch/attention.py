"""Detection of attention in a graph: its products, scale, mask and softmax become one step.

    MatMul(Softmax(Add(Mul(MatMul(query, Transpose(key)), scale), bias)), value)

Decoders with grouped-query attention have a Reshape before and after the mask. Their queries have more rows
than their keys, and the rows of a group are adjacent.
"""

from collections import Counter
from dataclasses import dataclass, replace

from vecmill.graphs.steps import Step, Steps, keep_needed

ATTENTION = "Attention"
"""The operator of the new step; inputs: query, key, value, bias; attribute: `scale`."""


@dataclass(frozen=True, slots=True)
class _Producers:
    """The steps that produce values, and the number of steps that read each value."""

    steps: dict[str, Step]
    readers: Counter[str]

    def find(self, value: str | None, operator: str) -> Step | None:
        """Return the step that produces `value` if it is an `operator` and `value` is read once."""
        if value is None or self.readers[value] != 1:
            return None
        step = self.steps.get(value)
        return step if step is not None and step.operator == operator else None

    def skip(self, value: str | None, operator: str) -> str | None:
        """Return the first input of the step that produces `value` if it is an `operator`, else `value`."""
        step = self.find(value, operator)
        return value if step is None else step.inputs[0]


def join_attention(steps: Steps) -> Steps:
    """Return `steps` with each attention of the form above as one step."""
    readers = Counter(name for step in steps.steps for name in step.inputs if name is not None)
    producers = _Producers({step.output: step for step in steps.steps}, readers)
    joined = [_join(producers, steps, step) or step for step in steps.steps]
    return replace(steps, steps=keep_needed(joined, steps.outputs))


def _join(producers: _Producers, steps: Steps, product: Step) -> Step | None:
    """Return the attention step that replaces `product`, `None` if `product` does not end attention."""
    if product.operator != "MatMul":
        return None
    shares = producers.find(producers.skip(product.inputs[0], "Reshape"), "Softmax")
    masked = shares and producers.find(shares.inputs[0], "Add")
    scaled = masked and producers.find(producers.skip(masked.inputs[0], "Reshape"), "Mul")
    scores = scaled and producers.find(scaled.inputs[0], "MatMul")
    turned = scores and producers.find(scores.inputs[1], "Transpose")
    if not (masked and scaled and scores and turned):
        return None
    scale = steps.constants.get(str(scaled.inputs[1]))
    if scale is None or turned.attributes["perm"] != (0, 1, 3, 2):
        return None
    inputs = (scores.inputs[0], turned.inputs[0], product.inputs[1], masked.inputs[1])
    return Step(ATTENTION, inputs, product.output, {"scale": scale.item()})
