"""The corrections that concern a model: why its outputs differ from those of an earlier version.

A model whose outputs were wrong must not read what was kept of them: prepared graphs, ranges of samples,
results, measured plans and the identity of its space. So the names of its corrections are part of its
fingerprint and of its space. A model that no correction concerns keeps both.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vecmill.models.description import ModelDescription
from vecmill.models.model_weights import tells_ties_apart


@dataclass(frozen=True, slots=True)
class Correction:
    """One correction. `name` is part of digests, so it never changes; `concerns` tells for which models.

    `concerns` reads settings, small files and the headers of weights only, because every start calls it; and
    tensors of which the headers tell that they may concern the model.
    """

    name: str
    concerns: Callable[[ModelDescription], bool]


CORRECTIONS: tuple[Correction, ...] = (
    # Output weights of their own, and the table of a T5 encoder, were not read where settings tie them.
    Correction("own tied tensors", tells_ties_apart),
)


def list_corrections(description: ModelDescription) -> tuple[str, ...]:
    """Return the names of the corrections that concern a model, in the order of `CORRECTIONS`.

    Raises `CorruptModel` if a file cannot be read.
    """
    return tuple(each.name for each in CORRECTIONS if each.concerns(description))
