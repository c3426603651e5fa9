"""Every error that vecmill raises on purpose, as one tree.

    VecmillError
    ├── RequestError            the caller can fix it
    │   ├── InvalidRequest      a value is missing, of the wrong type or out of range
    │   ├── UnknownPrompt       the model has no prompt of that name
    │   ├── UnsupportedTask     the model does something else
    │   ├── InputTooLong        one text is longer than the model reads, and truncation is off
    │   └── RequestTooLarge     the request could never fit, however long it waited
    ├── OverloadError           the caller can try again
    │   ├── QueueFull           no room now
    │   └── DeadlineExceeded    the answer would have come too late
    ├── UnavailableError        this process is not serving
    │   ├── NotReady            still loading
    │   ├── ShuttingDown        accepts nothing new
    │   └── LaneLost            a worker died or hangs
    ├── EngineError             the engine's fault
    │   ├── InferenceFailed     the engine raised for this text
    │   ├── DeviceLost          what the engine computes on is gone for good
    │   └── NonFiniteOutput     the engine computed NaN or infinity for this text
    └── SetupError              whoever starts the process can fix it
        ├── InvalidConfig       an option is wrong
        ├── ModelNotFound       there is no model where we were told to look
        ├── UnsupportedModel    the directory is whole but asks for something that we do not do
        ├── CorruptModel        the directory is broken or was tampered with
        ├── SelfCheckFailed     the loaded model gives rows that cannot be right
        ├── MissingExtra        a package that this choice needs is not installed
        ├── InvalidCorpus       a file of texts cannot be read, or a text in it not be embedded
        └── ServerFailed        a server that was named does not answer as it should

Messages are sentences for the person who reads them: what was wrong, where, what to do.
There is no HTTP in here: the server keeps one table from these classes to responses.
"""


class VecmillError(Exception):
    """The root of the tree. `message` is a sentence for a person, free of the caller's texts."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RequestError(VecmillError):
    """The request is wrong; sending it again unchanged cannot succeed.

    `field` names the part of the request at fault, `None` where no single part is.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidRequest(RequestError):
    """A value is missing, of the wrong type or out of range."""


class UnknownPrompt(RequestError):
    """The model has no prompt of that name."""


class UnsupportedTask(RequestError):
    """The model does something else than what it is asked."""


class InputTooLong(RequestError):
    """One text has `token_count` tokens, the model reads `max_tokens`, and truncation is off."""

    def __init__(self, message: str, *, token_count: int, max_tokens: int, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.token_count = token_count
        self.max_tokens = max_tokens


class RequestTooLarge(RequestError):
    """The request could never fit the limits, however long it waited."""


class OverloadError(VecmillError):
    """The request was fine; there was too much to do. Trying again may succeed."""


class QueueFull(OverloadError):
    """There is no room now. `retry_after_s` is the measured time until there may be (> 0)."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(OverloadError):
    """The deadline passed before the answer was there."""


class UnavailableError(VecmillError):
    """This process is not serving. Another one may be."""


class NotReady(UnavailableError):
    """The model is still loading."""


class ShuttingDown(UnavailableError):
    """The process accepts nothing new."""


class LaneLost(UnavailableError):
    """A worker died or hangs, and nothing is left to compute the answer."""


class EngineError(VecmillError):
    """The engine failed for this text; its batch-mates are not affected."""


class InferenceFailed(EngineError):
    """The engine raised for this text, alone in its batch."""


class DeviceLost(EngineError):
    """What the engine computes on is gone for this process: trying again is no use."""


class NonFiniteOutput(EngineError):
    """The engine computed NaN or infinity for this text."""


class SetupError(VecmillError):
    """Whoever starts the process can fix it."""


class InvalidConfig(SetupError):
    """An option has a value that cannot work."""


class ModelNotFound(SetupError):
    """There is no model where we were told to look."""


class UnsupportedModel(SetupError):
    """The model directory is whole but asks for something that vecmill does not do."""


class CorruptModel(SetupError):
    """The model directory is broken, or its contents are not what was promised."""


class SelfCheckFailed(SetupError):
    """The loaded model gives rows that cannot be right on this machine."""


class MissingExtra(SetupError):
    """A package that this choice needs is not installed."""


class InvalidCorpus(SetupError):
    """A file of texts cannot be read as it stands, or one of its texts cannot be embedded."""


class ServerFailed(SetupError):
    """A server that was named cannot be reached, or does not answer as it should."""
