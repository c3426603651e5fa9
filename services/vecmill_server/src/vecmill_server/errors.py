"""What can be wrong with an HTTP request before vecmill sees it, as one tree.

    RequestError (vecmill.errors)
    └── HttpError
        ├── InvalidJson             the body is not a JSON object
        ├── EmptyInput              the list of what is asked about has nothing in it
        ├── MalformedRequest        the bytes are not HTTP, or a header's value cannot be read
        ├── HeadersTooLarge         the request line and headers are over the limit
        ├── RequestTimedOut         the headers or the body took too long to arrive
        ├── BodyTooLarge            the body is over the limit
        ├── UnsupportedEncoding     the body is compressed
        ├── InvalidKey              the key is missing or wrong
        ├── UnknownModel            no model of that name is served
        ├── UnknownObject           no file or batch of that id is kept
        ├── Conflict                what is asked for cannot be done as things stand
        ├── BatchesOff              the server keeps no files and batches
        ├── UnknownRoute            there is nothing at this path
        └── MethodNotAllowed        there is, but not for this method

`problems` says which response each one gets.
"""

from vecmill.errors import RequestError


class HttpError(RequestError):
    """The request is wrong as HTTP; sending it again unchanged cannot succeed."""


class InvalidJson(HttpError):
    """The body is not a JSON object."""


class EmptyInput(HttpError):
    """The list of what is asked about has nothing in it."""


class MalformedRequest(HttpError):
    """The bytes are not HTTP, or a header's value cannot be read."""


class HeadersTooLarge(HttpError):
    """The request line and headers are over the limit."""


class RequestTimedOut(HttpError):
    """The headers or the body took too long to arrive."""


class BodyTooLarge(HttpError):
    """The body is over the limit."""


class UnsupportedEncoding(HttpError):
    """The body is compressed."""


class InvalidKey(HttpError):
    """The key is missing or wrong."""


class UnknownModel(HttpError):
    """No model is served under `name`, which is cut where it is long."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message, field="model")
        self.name = name


class UnknownObject(HttpError):
    """No file or batch of that id is kept."""


class Conflict(HttpError):
    """What is asked for cannot be done as things stand, such as to cancel what has ended."""


class BatchesOff(HttpError):
    """The server was told no folder to keep files and batches in."""


class UnknownRoute(HttpError):
    """There is nothing at this path."""


class MethodNotAllowed(HttpError):
    """The path exists, but not for this method; `allowed` names those that do."""

    def __init__(self, message: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class ClientGone(Exception):
    """The client closed its connection: there is nobody left to answer."""
