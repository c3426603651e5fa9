"""Calls of functions in the page's modules, by Node.js."""

import json
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

from support.client_packages import NODE

ASSETS = Path(str(files("vecmill_server.app.console"))) / "assets"
PROGRAM = Path(__file__).with_name("run_module.mjs")


def call(module: str, name: str, *args: Any, needs_key: bool = False) -> Any:
    """Return what the exported function `name` of a module returns."""
    request = {"module": module, "name": name, "args": args, "needsKey": needs_key}
    done = subprocess.run(
        [str(NODE), str(PROGRAM), str(ASSETS)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
