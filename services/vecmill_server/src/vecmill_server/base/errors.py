"""The errors of an HTTP request.

    RequestError (vecmill.errors)
    └── HttpError
        ├── InvalidJson             the body is not a JSON object
        ├── EmptyInput              the list of inputs is empty
        ├── MalformedRequest        the bytes are not HTTP, or a header has an invalid value
        ├── HeadersTooLarge         the request line and headers are over the limit
        ├── RequestTimedOut         the headers or the body took too long to arrive
        ├── BodyTooLarge            the body is over the limit
        ├── StorageFull             the stored files are at a limit, or the disk is full
        ├── UnsupportedEncoding     the body is compressed
        ├── InvalidKey              the key is missing or wrong
        ├── ForeignOrigin           the request comes from a web page of another origin
        ├── ForeignHost             the request is for a host name that is not the server's
        ├── AdminRequired           the request would change what is served, and has no admin key
        ├── UnknownModel            no model with that name is served
        ├── UnknownObject           no file or batch with that id is stored
        ├── Conflict                the operation is impossible in the current state of the object
        ├── OtherSpace              the vectors would be in another space than the client expects
        ├── BatchesOff              the server runs without a batch folder
        ├── UnknownRoute            no route has this path
        └── MethodNotAllowed        the path does not accept this method
    UnavailableError (vecmill.errors)
    └── ModelUnavailable            one of several models cannot answer
    OverloadError (vecmill.errors)
    ├── NoRoom                      the model is not loaded, and could not be in time
    ├── BuffersFull                 the buffers of the server are full of other requests
    └── TooManyConnections          the server has as many connections as it accepts

`error_responses` maps each error to its response.
"""

from vecmill.errors import OverloadError, RequestError, UnavailableError


class HttpError(RequestError):
    """The request is invalid at the level of HTTP. Sending it again unchanged cannot succeed."""


class InvalidJson(HttpError):
    """The body is not a JSON object."""


class EmptyInput(HttpError):
    """The list of inputs is empty."""


class MalformedRequest(HttpError):
    """The bytes are not HTTP, or a header has an invalid value."""


class HeadersTooLarge(HttpError):
    """The request line and headers are over the limit."""


class RequestTimedOut(HttpError):
    """The headers or the body took too long to arrive."""


class BodyTooLarge(HttpError):
    """The body is over the limit."""


class StorageFull(HttpError):
    """The stored files would pass a limit, or the disk is full. `room` bytes can be stored."""

    def __init__(self, message: str, *, room: int = 0) -> None:
        super().__init__(message)
        self.room = room


class BuffersFull(OverloadError):
    """The buffers of the server are full of other requests. A later attempt can succeed."""


class TooManyConnections(OverloadError):
    """The server has as many connections as it accepts. A later attempt can succeed."""


class UnsupportedEncoding(HttpError):
    """The body is compressed."""


class InvalidKey(HttpError):
    """The key is missing or wrong."""


class ForeignOrigin(HttpError):
    """The request comes from a web page of an origin that is not allowed."""


class ForeignHost(HttpError):
    """The request is for a host name that is not known to be the server's."""


class AdminRequired(HttpError):
    """The request would change what is served, and its key is not an admin key."""


class UnknownModel(HttpError):
    """No model is served under `name`, which is truncated if it is long."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message, field="model")
        self.name = name


class UnknownObject(HttpError):
    """No file or batch with that id is stored."""


class Conflict(HttpError):
    """The operation is impossible in the current state of the object, such as cancelling an ended batch."""


class OtherSpace(HttpError):
    """The vectors of the answer would be in another space than the client expects."""


class BatchesOff(HttpError):
    """The server runs without a batch folder."""


class UnknownRoute(HttpError):
    """No route has this path."""


class MethodNotAllowed(HttpError):
    """The path does not accept this method; `allowed` lists the methods that it accepts."""

    def __init__(self, message: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class NoRoom(OverloadError):
    """The model is not loaded, and could not be loaded in time.

    `retry_after_s` is the expected time until there may be room (> 0).
    """

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelUnavailable(UnavailableError):
    """The model failed to load or lost its workers. Other models of this process may answer.

    `retry_after_s` is the time until the model is loaded again, `None` if that is unknown.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ClientGone(Exception):
    """The client closed its connection, so no response can be sent."""
