"""Every error that vecmill raises on purpose, as one class tree.

    VecmillError
    ├── RequestError            the caller can fix it
    │   ├── InvalidRequest      a value is missing, of the wrong type or out of range
    │   ├── UnknownPrompt       the model has no prompt of that name
    │   ├── UnsupportedTask     the model is for another task
    │   ├── InputTooLong        one text is longer than the model reads, and truncation is off
    │   └── RequestTooLarge     the request could never fit, however long it waited
    │       └── InputLimitExceeded  too many inputs, or one of too many characters; an InvalidRequest too
    ├── OverloadError           the caller can try again
    │   ├── QueueFull           no room now
    │   └── DeadlineExceeded    the answer would have come too late
    ├── UnavailableError        this process is not serving
    │   ├── NotReady            still loading
    │   ├── ShuttingDown        accepts nothing new
    │   └── LaneLost            a worker died or hangs
    ├── EngineError             the fault of the engine, or of the tokenizer
    │   ├── InferenceFailed     the engine raised for this text
    │   ├── TokenizationFailed  the tokenizer or the chat template raised for this text
    │   ├── DeviceLost          the device of the engine is gone for good
    │   └── NonFiniteOutput     the engine computed NaN or infinity for this text
    └── SetupError              the operator can fix it
        ├── InvalidConfig       an option is wrong
        ├── ModelNotFound       there is no model where we were told to look
        ├── UnsupportedModel    the directory is whole but asks for something that we do not do
        ├── CorruptModel        the directory is broken or was tampered with
        ├── LoadFailed          a model could not be loaded for a reason that no check foresaw
        ├── SelfCheckFailed     the loaded model computes embeddings that cannot be right
        ├── MissingExtra        a package that this choice needs is not installed
        ├── InvalidCorpus       a file of texts cannot be read, or a text in it not be embedded
        └── ServerFailed        a server that was named does not answer as it should

Messages are sentences for people: they name the problem, its place and the remedy. This module does not know
HTTP: the server has a table that maps these classes to responses.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_SHOWN_CHARACTERS = 300  # of another library's message


def one_line(error: object) -> str:
    """Return the message of another library's exception, for a sentence: in one printable line, shortened.

    Such a message may contain parts of a file or of an input, of any length.
    """
    text = " ".join(str(error).split())
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return shown if shown.isprintable() else ascii(shown)[1:-1]


class VecmillError(Exception):
    """The root of the tree. `message` is a sentence for a person, without the texts of a request."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Callable[..., "VecmillError"], tuple[object, ...]]:
        """Let another process have the error, whatever its constructor needs."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[VecmillError], args: tuple[object, ...], state: Mapping[str, object]) -> VecmillError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class RequestError(VecmillError):
    """The request is wrong; sending it again unchanged cannot succeed.

    `field` names the invalid part of the request, `None` if no single part is invalid. The texts of a request
    are named `input`, `query` or `documents`; other parts have their names in `vecmill.requests`.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def rename_fields(self, names: Mapping[str, str]) -> None:
        """Replace field names with the names that the client uses, in `field` and in the message."""

        def rename(found: re.Match[str]) -> str:
            return found[1] + names.get(found[2], found[2])

        self.rename_places(lambda text: re.sub(r"(`)(\w+)", rename, text))
        if self.field is not None:
            self.field = re.sub(r"^()(\w+)", rename, self.field)

    def rename_places(self, rename: Callable[[str], str]) -> None:
        """Replace the names of parts of the request, in backquotes, in what a person reads."""
        self.message = rename(self.message)
        self.args = (self.message,)


@contextmanager
def fields_renamed(**names: str) -> Iterator[None]:
    """Call `RequestError.rename_fields` on a `RequestError` that is raised inside the context."""
    try:
        yield
    except RequestError as error:
        error.rename_fields(names)
        raise


@contextmanager
def items_renamed(name: Callable[[int], str]) -> Iterator[None]:
    """Rename item `index` of `input` to `name(index)`, in a `RequestError` that is raised inside the context.

    For lists that were joined, and parts of lists.
    """
    try:
        yield
    except RequestError as error:
        error.rename_places(lambda text: re.sub(r"(?<=`)input\[(\d+)\]", _name_item(name), text))
        if error.field is not None:
            error.field = re.sub(r"^input\[(\d+)\]", _name_item(name), error.field)
        raise


def _name_item(name: Callable[[int], str]) -> Callable[[re.Match[str]], str]:
    return lambda found: name(int(found[1]))


class InvalidRequest(RequestError):
    """A value is missing, of the wrong type or out of range."""


class UnknownPrompt(RequestError):
    """The model has no prompt of that name."""


class UnsupportedTask(RequestError):
    """The model is for another task than the request."""


class InputTooLong(RequestError):
    """One text has `token_count` tokens, more than the model's `max_tokens`, and truncation is off.

    `where` is the name of the text in the request, in backquotes, such as `input[3]`.
    """

    def __init__(
        self, message: str, *, token_count: int, max_tokens: int, where: str, field: str | None = None
    ) -> None:
        super().__init__(message, field=field)
        self.token_count = token_count
        self.max_tokens = max_tokens
        self.where = where

    def rename_places(self, rename: Callable[[str], str]) -> None:
        """Replace the names of parts of the request, in backquotes, in what a person reads."""
        super().rename_places(rename)
        self.where = rename(self.where)


class RequestTooLarge(RequestError):
    """The request is larger than a limit on size, and could not be accepted at any time. Divide it."""


class InputLimitExceeded(RequestTooLarge, InvalidRequest):
    """The request has too many inputs, or one of them has too many characters.

    For HTTP it is a wrong value, while the other limits on size are about the request as a whole.
    """


class OverloadError(VecmillError):
    """The request is valid, but there is too much other work. Trying again may succeed."""


class QueueFull(OverloadError):
    """The queue has no room now. `retry_after_s` is the measured time until there may be room (> 0)."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(OverloadError):
    """The deadline passed before the result was complete."""


class UnavailableError(VecmillError):
    """This process is not serving. Another process may be."""


class NotReady(UnavailableError):
    """The model is still loading."""


class ShuttingDown(UnavailableError):
    """The process accepts no new requests."""


class LaneLost(UnavailableError):
    """The lane that computed the text ended or hangs, or no lane is left."""


def still_loading() -> NotReady:
    """Return the error of a request to a mill whose model is not loaded yet."""
    return NotReady("The model is still loading. Try again in a moment.")


def closed_for_good() -> ShuttingDown:
    """Return the error of a start of a mill that was closed."""
    return ShuttingDown("The mill is closed, and does not start again. Make a new one.")


def mill_closed() -> ShuttingDown:
    """Return the error of a request to a mill that is closed, or is closing."""
    return ShuttingDown("The mill is closed, and answers no more requests.")


def workers_lost() -> LaneLost:
    """Return the error of a request to a mill that has no worker, and cannot get one."""
    return LaneLost("Every worker of this model is lost. The program has to be restarted.")


class EngineError(VecmillError):
    """The engine, or what runs before it, failed for this text. Other texts are not affected."""


class InferenceFailed(EngineError):
    """The engine raised for this text, alone in its batch."""


class TokenizationFailed(EngineError):
    """The tokenizer or the model's chat template raised for this text, before the engine read it."""


class DeviceLost(EngineError):
    """This process has lost the device of the engine for good. Trying again cannot succeed."""


class NonFiniteOutput(EngineError):
    """The engine computed NaN or infinity for this text."""


class SetupError(VecmillError):
    """The operator, who starts the process, can fix it."""


class InvalidConfig(SetupError):
    """An option has a value that cannot work."""


class ModelNotFound(SetupError):
    """There is no model at the given place."""


class UnsupportedModel(SetupError):
    """The model directory is complete but needs a feature that vecmill does not support."""


class CorruptModel(SetupError):
    """The model directory is broken, or its contents differ from their recorded checksums or settings."""


class LoadFailed(SetupError):
    """A model could not be loaded for a reason that no check foresaw."""


class SelfCheckFailed(SetupError):
    """The loaded model computes embeddings that cannot be right on this machine."""


class MissingExtra(SetupError):
    """A package that this choice needs is not installed."""


class InvalidCorpus(SetupError):
    """A file of texts cannot be read, or one of its texts cannot be embedded."""


class ServerFailed(SetupError):
    """The given server cannot be reached, or returns an unexpected response."""
