"""The HTTP face of vecmill: it reads requests, hands them to a `Mill`, and writes answers."""

__all__ = ["__version__"]

__version__ = "0.1.0"
