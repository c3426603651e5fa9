"""Exceptions for PyTorch weights files that are not read. The messages continue a sentence about the file."""

_SHOWN_CHARACTERS = 100


class DamagedFile(ValueError):
    """The file is incomplete, or its parts contradict each other."""


class RefusedContent(ValueError):
    """The file contains something that weights do not need, or that is not supported."""


def show(name: str | bytes) -> str:
    """Return a name of the file for an error message: quoted, shortened, without control characters."""
    shown = ascii(name[:_SHOWN_CHARACTERS])
    return shown if len(name) <= _SHOWN_CHARACTERS else f"{shown}..."
