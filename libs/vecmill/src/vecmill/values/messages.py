"""Phrases that error messages share, and the command that installs or removes packages."""

import shlex
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

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


def find_links_hint(*folders: str) -> str:
    """Return how a command that installs a package of vecmill finds it before a package index has it."""
    options = " ".join(f"--find-links {folder}" for folder in folders)
    return f"add `{options}` to install from the wheels that `make wheels` builds in a clone"


FIND_LINKS_HINT = find_links_hint("dist")

# The folders in uv's cache with the environments of `uvx`.
_UVX_FOLDERS = ("archive-v", "environments-v")


def pip_command(action: str, *packages: str) -> str:
    """Return the shell command that applies `action` ("install", "uninstall") to the running interpreter.

    The command names the interpreter, since `pip` on the search path may belong to another. An environment
    that uv made has no pip; the command is then uv's. An environment of `uvx` belongs to uv's cache, so the
    command starts `vecmill-server` with the packages instead.
    """
    # Not `importlib.util.find_spec`: setuptools has a hook there, which takes the search for a sign that pip
    # runs, and then setuptools cannot be imported any more, which torch needs to compile.
    if PathFinder.find_spec("pip") is not None:
        words = [sys.executable, "-m", "pip", *action.split(), *packages]
    elif action == "install" and _is_of_uvx():
        words = ["uvx", *(word for package in packages for word in ("--with", package)), "vecmill-server"]
    else:
        words = ["uv", "pip", *action.split(), "--python", sys.executable, *packages]
    return shlex.join(words)


def _is_of_uvx() -> bool:
    return any(part.startswith(_UVX_FOLDERS) for part in Path(sys.prefix).parts)
