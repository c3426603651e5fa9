"""The table from errors to HTTP responses, and the error bodies that most APIs share.

The default body has OpenAI's `error` object, and the `message` and `detail` strings that the clients of
Cohere, Jina and Voyage read. For clients that read a string at `error`, there is another body.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from vecmill import errors as core
from vecmill_server.base import errors as http
from vecmill_server.base.headers import HeaderList
from vecmill_server.base.json_io import encode_json
from vecmill_server.base.json_schema import OPTIONAL_STRING, Component

# Clients read `Retry-After` as whole seconds. Some do not retry after more than 30 seconds.
LONGEST_RETRY_S = 30
# The paths of Ollama, whose clients read a string at `error`.
_OLLAMA_PREFIX = "/api/"
_ALIBABA_PREFIX = "/api/v1/"
# The `Retry-After` of a process that is starting or stopping.
UNAVAILABLE_RETRY_S = 2.0


class Retry(Enum):
    """The response headers about a retry."""

    SILENT = auto()  # no header, because the status suffices
    LATER = auto()  # `Retry-After`
    NEVER = auto()  # `x-should-retry: false`, because clients retry a 5xx and a few other errors by default


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """The response to one class of errors. `reason` is the label in metrics and logs."""

    status: int
    type: str
    code: str | None
    reason: str
    retry: Retry = Retry.SILENT


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An encoded error response, ready to send."""

    status: int
    reason: str
    headers: HeaderList
    body: bytes


_INVALID = "invalid_request_error"
_SERVER = "server_error"

ERROR_SPECS: Mapping[type[core.VecmillError], ErrorSpec] = {
    core.InvalidRequest: ErrorSpec(400, _INVALID, "invalid_value", "invalid_request"),
    core.UnknownPrompt: ErrorSpec(400, _INVALID, "invalid_value", "unknown_prompt"),
    core.UnsupportedTask: ErrorSpec(400, _INVALID, "model_not_supported", "unsupported_task"),
    core.InputTooLong: ErrorSpec(400, _INVALID, "context_length_exceeded", "input_too_long"),
    core.InputLimitExceeded: ErrorSpec(400, _INVALID, "invalid_value", "invalid_request"),
    core.RequestTooLarge: ErrorSpec(413, _INVALID, "request_too_large", "request_too_large"),
    core.QueueFull: ErrorSpec(429, "rate_limit_error", "rate_limit_exceeded", "queue_full", Retry.LATER),
    core.DeadlineExceeded: ErrorSpec(504, _SERVER, "timeout", "deadline_exceeded"),
    core.NotReady: ErrorSpec(503, _SERVER, "service_unavailable", "not_ready", Retry.LATER),
    core.ShuttingDown: ErrorSpec(503, _SERVER, "service_unavailable", "shutting_down", Retry.LATER),
    core.LaneLost: ErrorSpec(503, _SERVER, "service_unavailable", "lane_lost", Retry.LATER),
    core.InferenceFailed: ErrorSpec(500, _SERVER, "internal_error", "inference_failed", Retry.NEVER),
    core.TokenizationFailed: ErrorSpec(500, _SERVER, "internal_error", "tokenization_failed", Retry.NEVER),
    core.DeviceLost: ErrorSpec(500, _SERVER, "internal_error", "device_lost", Retry.LATER),
    core.NonFiniteOutput: ErrorSpec(500, _SERVER, "internal_error", "non_finite_output", Retry.NEVER),
    core.InvalidConfig: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    core.ModelNotFound: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    core.UnsupportedModel: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    core.CorruptModel: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    core.LoadFailed: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    core.SelfCheckFailed: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    core.MissingExtra: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    core.InvalidCorpus: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    core.ServerFailed: ErrorSpec(500, _SERVER, "internal_error", "setup", Retry.NEVER),
    http.InvalidJson: ErrorSpec(400, _INVALID, "invalid_json", "invalid_json"),
    http.EmptyInput: ErrorSpec(400, _INVALID, "invalid_value", "invalid_request"),
    http.MalformedRequest: ErrorSpec(400, _INVALID, "malformed_request", "malformed_request"),
    http.HeadersTooLarge: ErrorSpec(431, _INVALID, "headers_too_large", "headers_too_large"),
    http.RequestTimedOut: ErrorSpec(408, _INVALID, "request_timeout", "request_timeout"),
    http.BodyTooLarge: ErrorSpec(413, _INVALID, "request_too_large", "body_too_large"),
    http.StorageFull: ErrorSpec(413, _INVALID, "storage_limit_exceeded", "storage_full"),
    http.BuffersFull: ErrorSpec(503, _SERVER, "service_unavailable", "buffers_full", Retry.LATER),
    http.TooManyConnections: ErrorSpec(
        503, _SERVER, "service_unavailable", "too_many_connections", Retry.LATER
    ),
    http.UnsupportedEncoding: ErrorSpec(415, _INVALID, "unsupported_encoding", "unsupported_encoding"),
    http.InvalidKey: ErrorSpec(401, _INVALID, "invalid_api_key", "invalid_key"),
    http.ForeignOrigin: ErrorSpec(403, _INVALID, "foreign_origin", "foreign_origin"),
    http.ForeignHost: ErrorSpec(403, _INVALID, "foreign_host", "foreign_host"),
    http.AdminRequired: ErrorSpec(403, _INVALID, "admin_key_required", "admin_required"),
    http.UnknownModel: ErrorSpec(404, _INVALID, "model_not_found", "unknown_model"),
    http.ModelUnavailable: ErrorSpec(503, _SERVER, "service_unavailable", "model_unavailable", Retry.LATER),
    http.NoRoom: ErrorSpec(503, _SERVER, "service_unavailable", "no_room", Retry.LATER),
    http.UnknownObject: ErrorSpec(404, _INVALID, None, "unknown_object"),
    # Clients retry a conflict by default, but a retry cannot succeed.
    http.Conflict: ErrorSpec(409, _INVALID, None, "conflict", Retry.NEVER),
    http.OtherSpace: ErrorSpec(409, _INVALID, "other_space", "other_space", Retry.NEVER),
    http.BatchesOff: ErrorSpec(404, _INVALID, "batches_off", "batches_off"),
    http.UnknownRoute: ErrorSpec(404, _INVALID, None, "unknown_route"),
    http.MethodNotAllowed: ErrorSpec(405, _INVALID, None, "method_not_allowed"),
}

# Sentences of the library, and what a client of a server reads instead.
_OF_SERVERS = {
    core.mill_closed().message: "This server is shutting down. Another one may answer.",
    "The log says more.": "The server's log says more.",
}

# An unexpected exception. Its message may contain anything, so it is logged but not sent.
UNEXPECTED = ErrorSpec(500, _SERVER, "internal_error", "internal_error")

REASONS = tuple(sorted({spec.reason for spec in ERROR_SPECS.values()} | {UNEXPECTED.reason}))


def spec_of(error: BaseException) -> ErrorSpec:
    """Return the spec of the class of `error`, or of its nearest base class in the table."""
    specs = (ERROR_SPECS[kind] for kind in type(error).__mro__ if kind in ERROR_SPECS)
    return next(specs, UNEXPECTED)


# The error bodies in the OpenAPI document.
ERROR_BODY = Component(
    "Problem",
    {
        "error": {"message": str, "type": str, "param": OPTIONAL_STRING, "code": OPTIONAL_STRING},
        "message": str,
        "detail": str,
    },
)
SENTENCE_BODY = Component("OllamaProblem", {"error": str})


def error_response(error: BaseException) -> ErrorResponse:
    """Return the default response to `error`."""
    spec, message = spec_of(error), message_of(error)
    parameter = error.field if isinstance(error, core.RequestError) else None
    return make_response(
        error,
        spec.status,
        {
            "error": {"message": message, "type": spec.type, "param": parameter, "code": spec.code},
            "message": message,
            "detail": message,
        },
    )


def sentence_response(error: BaseException, message: str | None = None) -> ErrorResponse:
    """Return the response to `error` for clients that read a string at `error`."""
    return make_response(error, spec_of(error).status, {"error": message or message_of(error)})


def response_at(path: str, error: BaseException) -> ErrorResponse:
    """Return the response to an error at `path` that no dialect answers, such as a wrong key."""
    respond = sentence_response if _is_of_ollama(path) else error_response
    return respond(error)


def error_body_at(path: str) -> Component:
    """Return the body of `response_at`."""
    return SENTENCE_BODY if _is_of_ollama(path) else ERROR_BODY


def _is_of_ollama(path: str) -> bool:
    return path.startswith(_OLLAMA_PREFIX) and not path.startswith(_ALIBABA_PREFIX)


def message_of(error: BaseException) -> str:
    """Return the error message for the client."""
    if isinstance(error, core.InputTooLong):
        # The wording that clients of the OpenAI API look for.
        return (
            f"This model's maximum context length is {error.max_tokens} tokens, however you requested "
            f"{error.token_count} tokens. Please reduce your prompt; or completion length. The text is "
            f"{error.where}."
        )
    if isinstance(error, core.VecmillError):
        message = error.message
        for of_library, of_server in _OF_SERVERS.items():
            message = message.replace(of_library, of_server)
        return message
    return "The server failed with an unexpected error."


def make_response(error: BaseException, status: int, body: Mapping[str, object]) -> ErrorResponse:
    """Return the response to `error` with this status and JSON body."""
    spec, encoded = spec_of(error), encode_json(body)
    headers: HeaderList = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(encoded)),
        *_retry_headers(spec, error),
        *_special_headers(error),
    ]
    return ErrorResponse(status, spec.reason, headers, encoded)


def _retry_headers(spec: ErrorSpec, error: BaseException) -> HeaderList:
    if spec.retry is Retry.NEVER:
        return [(b"x-should-retry", b"false")]
    if spec.retry is Retry.SILENT:
        return []
    wanted_s = _foreseen_retry_s(error)
    wait_s = min(wanted_s, LONGEST_RETRY_S) if math.isfinite(wanted_s) else LONGEST_RETRY_S
    return [
        (b"retry-after", b"%d" % max(1, math.ceil(wait_s))),
        (b"retry-after-ms", b"%d" % max(1, math.ceil(wait_s * 1000))),
    ]


def _foreseen_retry_s(error: BaseException) -> float:
    if isinstance(error, core.QueueFull | http.NoRoom | http.ModelUnavailable) and error.retry_after_s:
        return error.retry_after_s
    return UNAVAILABLE_RETRY_S


def _special_headers(error: BaseException) -> HeaderList:
    if isinstance(error, http.InvalidKey):
        return [(b"www-authenticate", b"Bearer")]
    if isinstance(error, http.MethodNotAllowed):
        return [(b"allow", ", ".join(error.allowed).encode())]
    return []
