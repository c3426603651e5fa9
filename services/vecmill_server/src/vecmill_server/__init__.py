"""The HTTP server of vecmill: the decoding of requests, their execution on a `Mill`, and the responses."""

from typing import Any

__version__: str  # of the installed distribution; see `__getattr__`


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("vecmill-server")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
