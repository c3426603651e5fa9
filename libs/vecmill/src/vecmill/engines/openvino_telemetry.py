"""Switches off the telemetry of OpenVINO.

`import openvino` sends an event to Google Analytics by default, from a process that it forks, and keeps an
identifier of the user in `~/intel`. Its only switch is a file there. All of that is in the package
`openvino_telemetry`. Without it, `openvino` uses an empty class of its own.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

_PACKAGE = "openvino_telemetry"


@contextmanager
def no_openvino_telemetry() -> Iterator[None]:
    """Hide the package `openvino_telemetry`, as long as the context lasts. Use it around `import openvino`.

    One thread at a time may use it. At the top of a module, Python's lock of that module sees to it.
    An `openvino` that the program has imported before stays as it is.
    """
    modules = cast("dict[str, object]", sys.modules)
    found = modules.get(_PACKAGE)
    modules[_PACKAGE] = None  # so an import raises ModuleNotFoundError
    try:
        yield
    finally:
        del modules[_PACKAGE]
        if found is not None:
            modules[_PACKAGE] = found
