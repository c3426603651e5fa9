"""The one table from errors to responses.

Every error carries the same body: OpenAI's `error` object, plus the `message` and `detail` strings that
Cohere's, Jina's, Voyage's and Weaviate's clients read. Only where clients read a sentence at `error`, as
TEI's and Ollama's do, it has another.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from vecmill import errors as core
from vecmill_server import errors as http
from vecmill_server.documents import encode_json

HeaderList = list[tuple[bytes, bytes]]

# Clients read `Retry-After` as whole seconds; some give up, and none gains, beyond half a minute.
LONGEST_RETRY_S = 30
# How soon a process that is starting or stopping, or the one that replaces it, is worth another try.
UNAVAILABLE_RETRY_S = 2.0


class Retry(Enum):
    """What the headers say about trying again."""

    SILENT = auto()  # nothing: the status says enough
    LATER = auto()  # after a time
    NEVER = auto()  # clients retry a 5xx, and some other errors, unless told not to


@dataclass(frozen=True, slots=True)
class Problem:
    """A row of the table. `reason` is the label in metrics and logs."""

    status: int
    type: str
    code: str | None
    reason: str
    retry: Retry = Retry.SILENT


@dataclass(frozen=True, slots=True)
class ProblemResponse:
    """An error, ready to send."""

    status: int
    reason: str
    headers: HeaderList
    body: bytes


_INVALID = "invalid_request_error"
_SERVER = "server_error"

PROBLEMS: Mapping[type[core.VecmillError], Problem] = MappingProxyType(
    {
        core.InvalidRequest: Problem(400, _INVALID, "invalid_value", "invalid_request"),
        core.UnknownPrompt: Problem(400, _INVALID, "invalid_value", "unknown_prompt"),
        core.UnsupportedTask: Problem(400, _INVALID, "model_not_supported", "unsupported_task"),
        core.InputTooLong: Problem(400, _INVALID, "context_length_exceeded", "input_too_long"),
        core.RequestTooLarge: Problem(413, _INVALID, "request_too_large", "request_too_large"),
        core.QueueFull: Problem(429, "rate_limit_error", "rate_limit_exceeded", "queue_full", Retry.LATER),
        core.DeadlineExceeded: Problem(504, _SERVER, "timeout", "deadline_exceeded"),
        core.NotReady: Problem(503, _SERVER, "service_unavailable", "not_ready", Retry.LATER),
        core.ShuttingDown: Problem(503, _SERVER, "service_unavailable", "shutting_down", Retry.LATER),
        core.LaneLost: Problem(503, _SERVER, "service_unavailable", "lane_lost", Retry.LATER),
        core.InferenceFailed: Problem(500, _SERVER, "internal_error", "inference_failed", Retry.NEVER),
        core.DeviceLost: Problem(500, _SERVER, "internal_error", "device_lost", Retry.LATER),
        core.NonFiniteOutput: Problem(500, _SERVER, "internal_error", "non_finite_output", Retry.NEVER),
        core.InvalidConfig: Problem(500, _SERVER, "internal_error", "setup", Retry.NEVER),
        core.ModelNotFound: Problem(500, _SERVER, "internal_error", "setup", Retry.NEVER),
        core.UnsupportedModel: Problem(500, _SERVER, "internal_error", "setup", Retry.NEVER),
        core.CorruptModel: Problem(500, _SERVER, "internal_error", "setup", Retry.NEVER),
        core.SelfCheckFailed: Problem(500, _SERVER, "internal_error", "setup", Retry.NEVER),
        core.MissingExtra: Problem(500, _SERVER, "internal_error", "setup", Retry.NEVER),
        core.InvalidCorpus: Problem(500, _SERVER, "internal_error", "setup", Retry.NEVER),
        core.ServerFailed: Problem(500, _SERVER, "internal_error", "setup", Retry.NEVER),
        http.InvalidJson: Problem(400, _INVALID, "invalid_json", "invalid_json"),
        http.EmptyInput: Problem(400, _INVALID, "invalid_value", "invalid_request"),
        http.MalformedRequest: Problem(400, _INVALID, "malformed_request", "malformed_request"),
        http.HeadersTooLarge: Problem(431, _INVALID, "headers_too_large", "headers_too_large"),
        http.RequestTimedOut: Problem(408, _INVALID, "request_timeout", "request_timeout"),
        http.BodyTooLarge: Problem(413, _INVALID, "request_too_large", "body_too_large"),
        http.UnsupportedEncoding: Problem(415, _INVALID, "unsupported_encoding", "unsupported_encoding"),
        http.InvalidKey: Problem(401, _INVALID, "invalid_api_key", "invalid_key"),
        http.UnknownModel: Problem(404, _INVALID, "model_not_found", "unknown_model"),
        http.UnknownObject: Problem(404, _INVALID, None, "unknown_object"),
        # Clients retry a conflict unless told not to, and it does not pass by itself.
        http.Conflict: Problem(409, _INVALID, None, "conflict", Retry.NEVER),
        http.BatchesOff: Problem(404, _INVALID, "batches_off", "batches_off"),
        http.UnknownRoute: Problem(404, _INVALID, None, "unknown_route"),
        http.MethodNotAllowed: Problem(405, _INVALID, None, "method_not_allowed"),
    }
)

# Where TEI's status for a `code` is another: that of frameworks which check a body's fields, and one for
# whatever the model cannot do or failed at.
_TEI_STATUSES: Mapping[str | None, int] = MappingProxyType(
    {
        "invalid_value": 422,
        "context_length_exceeded": 422,
        "model_not_supported": 424,
        "internal_error": 424,
    }
)
_TEI_KINDS: Mapping[int, str] = MappingProxyType({424: "Backend", 429: "Overloaded", 503: "Unhealthy"})

# An exception that nobody foresaw. Its text may hold anything, so it goes to the log and not to the client.
UNEXPECTED = Problem(500, _SERVER, "internal_error", "internal_error")

REASONS = tuple(sorted({problem.reason for problem in PROBLEMS.values()} | {UNEXPECTED.reason}))


def problem_of(error: BaseException) -> Problem:
    """The row of the table for `error`: its class's own, or its nearest ancestor's."""
    rows = (PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS)
    return next(rows, UNEXPECTED)


def problem_response(error: BaseException) -> ProblemResponse:
    """The response that answers `error`."""
    problem, message = problem_of(error), _message(error)
    parameter = error.field if isinstance(error, core.RequestError) else None
    document = {
        "error": {"message": message, "type": problem.type, "param": parameter, "code": problem.code},
        "message": message,
        "detail": message,
    }
    return _response(error, problem, problem.status, document)


def tei_status(problem: Problem) -> int:
    """The status that `problem` has on the routes of TEI's clients."""
    return _TEI_STATUSES.get(problem.code, problem.status)


def tei_response(error: BaseException) -> ProblemResponse:
    """The response that answers `error` on the routes of TEI's clients."""
    problem, message = problem_of(error), _message(error)
    if isinstance(error, core.InputTooLong):
        # It calls texts so on every route; what is before the dot is where in the body they stand.
        place, dot, _ = (error.field or "").rpartition(".")
        message = (
            f"`{place}{dot}inputs` must have less than {error.max_tokens} tokens. Given: {error.token_count}"
        )
    if isinstance(error, http.EmptyInput):
        return _response(error, problem, problem.status, {"error": message, "error_type": "Empty"})
    status = tei_status(problem)
    kind = _TEI_KINDS.get(status, "Validation" if status < 500 else "Backend")
    return _response(error, problem, status, {"error": message, "error_type": kind})


def ollama_response(error: BaseException) -> ProblemResponse:
    """The response that answers `error` on Ollama's routes."""
    if isinstance(error, http.UnknownModel):
        # In its words: some clients look for them.
        return _plain_response(error, f'model "{error.name}" not found, try pulling it first')
    return plain_response(error)


def plain_response(error: BaseException) -> ProblemResponse:
    """The response that answers `error` where clients read a sentence at `error`."""
    return _plain_response(error, _message(error))


def _plain_response(error: BaseException, message: str) -> ProblemResponse:
    problem = problem_of(error)
    return _response(error, problem, problem.status, {"error": message})


def _message(error: BaseException) -> str:
    if isinstance(error, core.VecmillError):
        return error.message
    return "Something went wrong inside the server."


def _response(
    error: BaseException, problem: Problem, status: int, document: Mapping[str, object]
) -> ProblemResponse:
    body = encode_json(document)
    headers: HeaderList = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *_retry_headers(problem, error),
        *_special_headers(error),
    ]
    return ProblemResponse(status, problem.reason, headers, body)


def _retry_headers(problem: Problem, error: BaseException) -> HeaderList:
    if problem.retry is Retry.NEVER:
        return [(b"x-should-retry", b"false")]
    if problem.retry is Retry.SILENT:
        return []
    wanted_s = error.retry_after_s if isinstance(error, core.QueueFull) else UNAVAILABLE_RETRY_S
    wait_s = min(wanted_s, LONGEST_RETRY_S) if math.isfinite(wanted_s) else LONGEST_RETRY_S
    return [
        (b"retry-after", b"%d" % max(1, math.ceil(wait_s))),
        (b"retry-after-ms", b"%d" % max(1, math.ceil(wait_s * 1000))),
    ]


def _special_headers(error: BaseException) -> HeaderList:
    if isinstance(error, http.InvalidKey):
        return [(b"www-authenticate", b"Bearer")]
    if isinstance(error, http.MethodNotAllowed):
        return [(b"allow", ", ".join(error.allowed).encode())]
    return []
