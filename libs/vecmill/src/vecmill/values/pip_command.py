"""The command that installs or removes packages of the running interpreter, for error messages."""

import shlex
import sys
from importlib.machinery import PathFinder


def pip_command(action: str, *packages: str) -> str:
    """Return the shell command that applies `action` ("install", "uninstall") to the running interpreter.

    The command names the interpreter, since `pip` on the search path may belong to another. An environment
    that uv made has no pip; the command is then uv's.
    """
    # Not `importlib.util.find_spec`: setuptools has a hook there, which takes the search for a sign that pip
    # runs, and then setuptools cannot be imported any more, which torch needs to compile.
    if PathFinder.find_spec("pip") is None:
        words = ["uv", "pip", *action.split(), "--python", sys.executable]
    else:
        words = [sys.executable, "-m", "pip", *action.split()]
    return shlex.join([*words, *packages])
