"""Calls of functions in the page's modules, by Node.js."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from support.client_packages import NODE
from support.line_process import LineProcess

ASSETS = Path(str(files("vecmill_server.app"))) / "console/assets"
PROGRAM = Path(__file__).with_name("run_module.mjs")


@cache
def _node(*, needs_key: bool) -> LineProcess:
    return LineProcess([NODE, PROGRAM, ASSETS, str(needs_key).lower()])


def call(module: str, name: str, *args: Any, needs_key: bool = False) -> Any:
    """Return what the exported function `name` of a module returns."""
    answer = _node(needs_key=needs_key).ask({"module": module, "name": name, "args": args})
    assert "value" in answer, answer["error"]
    return answer["value"]
