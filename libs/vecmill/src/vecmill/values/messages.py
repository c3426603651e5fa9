"""Phrases that error messages share."""

from collections.abc import Iterable

_SHOWN_CHARACTERS = 100


def show(value: object) -> str:
    """Return a value of a file for an error message, shortened."""
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def show_name(text: str) -> str:
    """Return a string as `show` does, without quotes."""
    return show(text).strip("'\"")


def not_supported(what: str, value: object, supported: Iterable[str]) -> str:
    """Return the message that `value` of `what`, such as "config.json: dtype", is none of `supported`.

    The supported values are listed in their order.
    """
    return f"{what} {show(value)} is not supported; supported: {', '.join(supported)}."
