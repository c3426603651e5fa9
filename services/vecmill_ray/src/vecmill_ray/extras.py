"""The error of a command whose extra of `vecmill-ray` is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from vecmill.errors import MissingExtra
from vecmill.values.pip_command import pip_command


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Import the modules of an extra in this block. Raises `MissingExtra` if a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("vecmill", "vecmill_ray", "vecmill_server"):
            raise
        command = pip_command("install", f"vecmill-ray[{extra}]")
        raise MissingExtra(f"{error.name} is not installed. The command needs an extra: {command}") from error
