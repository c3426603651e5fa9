"""The outcomes of admitted texts, which are values of a label."""

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of an admitted text."""

    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
