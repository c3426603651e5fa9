"""What follows from a load that failed: when it may be tried again, and what clients and probes are told.

A model that fails at the start is not loaded again (`loads_at_start`); one that is loaded on demand is, by a
request (`residency`).
"""

from collections.abc import Mapping

from vecmill.errors import (
    CorruptModel,
    InvalidConfig,
    LoadFailed,
    MissingExtra,
    ModelNotFound,
    SelfCheckFailed,
    UnsupportedModel,
    VecmillError,
)

# A load is tried again so long after its first failure; each further failure doubles the time.
FIRST_RELOAD_S, LONGEST_RELOAD_S = 2.0, 300.0
# Doubled more often, the time would have no float.
_MOST_DOUBLINGS = 32

# The short reasons of failures. `/readyz` shows them to everybody, so they have no paths. The messages of the
# errors may have paths, and are in the log.
_FAILURES: Mapping[type[VecmillError], str] = {
    CorruptModel: "The files of this model are damaged or incomplete.",
    InvalidConfig: "An option does not fit this model.",
    MissingExtra: "A package that this model needs is not installed.",
    LoadFailed: "The files of this model are damaged, or need a feature that the server does not have.",
    ModelNotFound: "The files of this model were not found.",
    SelfCheckFailed: "The self-check found that this model computes wrong embeddings.",
    UnsupportedModel: "This model needs a feature that the server does not have.",
}
_OTHER_FAILURE = "This model could not be loaded."


def explain_failure(error: VecmillError) -> str:
    """Return the reason, for everybody. It has no paths, which the message of `error` may have."""
    return f"{_FAILURES.get(type(error), _OTHER_FAILURE)} The log of the server has the details."


def reload_delay_s(earlier_failures: int) -> float:
    """Return how long a load that failed is not tried again, after so many failures in a row before it."""
    return min(FIRST_RELOAD_S * 2.0 ** min(earlier_failures, _MOST_DOUBLINGS), LONGEST_RELOAD_S)
