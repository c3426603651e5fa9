"""Switches off the telemetry of the runtimes: what vecmill loads sends nothing to anybody.

ONNX Runtime sends telemetry by default, and keeps an identifier of the machine in the cache folder. It reads
an environment variable.

`import openvino` sends an event to Google Analytics by default, from a process that it forks, and keeps an
identifier of the user in `~/intel`. Its only switch is a file there. All of that is in the package
`openvino_telemetry`. Without it, `openvino` uses an empty class of its own.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

_OPENVINO_TELEMETRY = "openvino_telemetry"


@contextmanager
def runtimes_without_telemetry() -> Iterator[None]:
    """Import runtimes without their telemetry, as long as the context lasts.

    A runtime that the program has imported before stays as it is.
    """
    os.putenv("ORT_DISABLE_TELEMETRY", "1")
    if _OPENVINO_TELEMETRY in sys.modules:
        yield
        return
    modules = cast("dict[str, object]", sys.modules)
    modules[_OPENVINO_TELEMETRY] = None  # so an import raises ModuleNotFoundError
    try:
        yield
    finally:
        del modules[_OPENVINO_TELEMETRY]
