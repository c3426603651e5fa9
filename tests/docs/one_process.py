"""Runs examples one after the other in one process: apart, most of their time would be imports.

Reads a JSON list of `Run`s from standard input. Its last line is an object with what went wrong by place.
"""

import io
import json
import os
import runpy
import sys
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import TypedDict


class Run(TypedDict):
    """What is run for the example at `place`, in `folder`: a file of Python, or a command of vecmill."""

    place: str
    folder: str
    program: str
    arguments: list[str]
    environment: dict[str, str]


def run(what: Run) -> str:
    """What went wrong, or nothing. Warnings of programs are errors."""
    os.chdir(what["folder"])
    os.environ.clear()
    os.environ.update(what["environment"])
    sys.argv = [what["program"], *what["arguments"]]
    printed = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(printed), redirect_stderr(printed):
            if what["program"] == "vecmill":
                runpy.run_module("vecmill", run_name="__main__")
            else:
                warnings.simplefilter("error")
                runpy.run_path(what["program"], run_name="__main__")
    except SystemExit as ended:
        return f"status {ended.code}\n{printed.getvalue()}" if ended.code else ""
    except Exception:
        return printed.getvalue() + traceback.format_exc()
    return ""


def main() -> None:
    """Run all, but for those at a place where something went wrong before."""
    found: dict[str, str] = {}
    for what in json.load(sys.stdin):
        found[what["place"]] = found.get(what["place"]) or run(what)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
