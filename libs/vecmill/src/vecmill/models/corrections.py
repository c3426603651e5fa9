"""The corrections that concern a model: why this version gives other outputs for its files than an earlier one.

A model whose outputs were wrong must not read what was kept of them: prepared graphs, ranges of samples,
results, measured plans and the identity of its space. So the names of its corrections are part of its
fingerprint and of its space. A model that no correction concerns keeps both. What changes in the tokens of
texts is not here: it is part of the description of a model, as `token_changes`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vecmill.models.description import ModelDescription


@dataclass(frozen=True, slots=True)
class Correction:
    """One correction. `name` is part of digests, so it never changes; `concerns` tells for which models.

    `concerns` reads settings, small files and the headers of weights only, because every start calls it.
    """

    name: str
    concerns: Callable[[ModelDescription], bool]


CORRECTIONS: tuple[Correction, ...] = ()


def list_corrections(description: ModelDescription) -> tuple[str, ...]:
    """Return the names of the corrections that concern a model, in the order of `CORRECTIONS`.

    Raises `CorruptModel` if a file cannot be read.
    """
    return tuple(each.name for each in CORRECTIONS if each.concerns(description))
