"""The corrections that concern a model: why its outputs differ from those of an earlier version.

A model whose outputs were wrong must not read what was kept of them: prepared graphs, ranges of samples,
results, measured plans and the identity of its space. So the names of its corrections are part of its
fingerprint and of its space. A model that no correction concerns keeps both.
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


def _expands_on_the_left(description: ModelDescription) -> bool:
    settings = description.multi_vector
    return settings is not None and settings.expansion is not None and settings.expansion.stands_first


CORRECTIONS: tuple[Correction, ...] = (
    # A token of an expanded query that attends to nothing weighed its own text and the padding beside it.
    Correction("tokens without keys", lambda description: description.has_keyless_tokens),
    # The copies of the expansion came after the query, although the tokenizer pads on the left.
    Correction("expansion on the left", _expands_on_the_left),
)


def list_corrections(description: ModelDescription) -> tuple[str, ...]:
    """Return the names of the corrections that concern a model, in the order of `CORRECTIONS`.

    Raises `CorruptModel` if a file cannot be read.
    """
    return tuple(each.name for each in CORRECTIONS if each.concerns(description))
