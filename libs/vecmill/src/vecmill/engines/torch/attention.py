"""Attention found again in a graph: its products, scale, mask and softmax become one step.

    MatMul(Softmax(Add(Mul(MatMul(query, Transpose(key)), scale), bias)), value)

Decoders that share heads of keys put a Reshape on either side of the mask; their queries then have more
rows than there are keys, those of a group one after the other.
"""

from collections import Counter
from dataclasses import dataclass, replace

from vecmill.graphs.steps import Step, Steps, keep_needed

ATTENTION = "Attention"
"""The new step: query, key, value and bias, with the attribute `scale`."""


@dataclass(frozen=True, slots=True)
class _Maker:
    """Which step makes a value, where nothing but that chain reads it."""

    steps: dict[str, Step]
    readers: Counter[str]

    def find(self, value: str | None, operator: str) -> Step | None:
        """The step behind `value` if it is an `operator` read once."""
        if value is None or self.readers[value] != 1:
            return None
        step = self.steps.get(value)
        return step if step is not None and step.operator == operator else None

    def skip(self, value: str | None, operator: str) -> str | None:
        """What an `operator` behind `value` reads first, or `value` itself."""
        step = self.find(value, operator)
        return value if step is None else step.inputs[0]


def join_attention(steps: Steps) -> Steps:
    """`steps` with attention in one step each, wherever it has the form above."""
    readers = Counter(name for step in steps.steps for name in step.inputs if name is not None)
    maker = _Maker({step.output: step for step in steps.steps}, readers)
    joined = [_join(maker, steps, step) or step for step in steps.steps]
    return replace(steps, steps=keep_needed(joined, steps.output))


def _join(maker: _Maker, steps: Steps, product: Step) -> Step | None:
    """The attention that ends in `product`, if it does."""
    if product.operator != "MatMul":
        return None
    shares = maker.find(maker.skip(product.inputs[0], "Reshape"), "Softmax")
    masked = shares and maker.find(shares.inputs[0], "Add")
    scaled = masked and maker.find(maker.skip(masked.inputs[0], "Reshape"), "Mul")
    scores = scaled and maker.find(scaled.inputs[0], "MatMul")
    turned = scores and maker.find(scores.inputs[1], "Transpose")
    if not (masked and scaled and scores and turned):
        return None
    scale = steps.constants.get(str(scaled.inputs[1]))
    if scale is None or turned.attributes["perm"] != (0, 1, 3, 2):
        return None
    inputs = (scores.inputs[0], turned.inputs[0], product.inputs[1], masked.inputs[1])
    return Step(ATTENTION, inputs, product.output, {"scale": scale.item()})
