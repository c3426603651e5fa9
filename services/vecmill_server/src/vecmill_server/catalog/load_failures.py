"""The short reasons why models could not be loaded, for clients and probes."""

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
