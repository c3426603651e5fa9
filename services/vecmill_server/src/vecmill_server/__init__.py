"""The HTTP server of vecmill: the decoding of requests, their execution on a `Mill`, and the responses."""

__all__ = ["__version__"]

__version__ = "0.1.0"
