"""Cases of which the quick suite has a sample, and the mark `full` all."""

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

import pytest


def in_part(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """Return a parameter for each case, those that are not in `quick` with the mark `full`."""
    found = list(cases)
    assert all(case in found for case in quick), "the sample has a case that is none"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else [case]), marks=() if case in quick else pytest.mark.full
        )
        for case in found
    ]


def one_of_each(cases: Iterable[Any], kind: Callable[[Any], Hashable]) -> list[Any]:
    """Return the first case of each kind."""
    found: dict[Hashable, Any] = {}
    for case in cases:
        found.setdefault(kind(case), case)
    return list(found.values())


def in_turns(*factors: Collection[Any]) -> list[Any]:
    """Combine the factors; each of the first one is quick once, with the others in turns."""
    others = list(itertools.product(*factors[1:]))
    quick = [(case, *others[number % len(others)]) for number, case in enumerate(factors[0])]
    return in_part(itertools.product(*factors), *quick)
