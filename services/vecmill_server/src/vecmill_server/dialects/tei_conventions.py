"""Text Embeddings Inference's errors and timing headers, and the `parameters` that its bodies may have."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vecmill.errors import InputTooLong
from vecmill.requests import Request
from vecmill.results import Result
from vecmill_server.base.error_responses import ErrorResponse, ErrorSpec, make_response, message_of, spec_of
from vecmill_server.base.errors import EmptyInput
from vecmill_server.base.headers import HeaderList
from vecmill_server.base.json_io import kind_of
from vecmill_server.base.json_schema import Component, Schema, an_object, of_the_model
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects.dialect import Asked, InferenceBody, ResponseStyle
from vecmill_server.dialects.fields import DialectOptions, Json, invalid
from vecmill_server.dialects.known_fields import HUGGING_FACE

INPUTS = "inputs"
PARAMETERS = "parameters"
INSTANCES = "instances"
# The fields that are no options: all others may also stand in `parameters`.
NO_OPTIONS = frozenset({"model", INPUTS, "query", "texts", "ids", INSTANCES, PARAMETERS})

# TEI's statuses where they differ, by `code`: 422 for fields that cannot be read, 424 for what the model
# cannot do or failed at.
_STATUSES: Mapping[str | None, int] = MappingProxyType(
    {
        "invalid_value": 422,
        "context_length_exceeded": 422,
        "model_not_supported": 424,
        "internal_error": 424,
    }
)
_ERROR_TYPES: Mapping[int, str] = MappingProxyType({424: "Backend", 429: "Overloaded", 503: "Unhealthy"})


def tei_status(spec: ErrorSpec) -> int:
    """Return the status of an error on TEI's routes."""
    return _STATUSES.get(spec.code, spec.status)


def tei_response(error: BaseException) -> ErrorResponse:
    """Return the response for `error` on TEI's routes."""
    message = message_of(error)
    if isinstance(error, InputTooLong):
        # TEI calls the texts `inputs` on every route. Before the dot is the place of an instance.
        place, dot, _ = (error.field or "").rpartition(".")
        message = (
            f"`{place}{dot}inputs` must have less than {error.max_tokens} tokens. Given: {error.token_count}"
        )
    spec = spec_of(error)
    if isinstance(error, EmptyInput):
        return make_response(error, spec.status, {"error": message, "error_type": "Empty"})
    status = tei_status(spec)
    kind = _ERROR_TYPES.get(status, "Validation" if status < 500 else "Backend")
    return make_response(error, status, {"error": message, "error_type": kind})


def tei_headers(request: Request[Any], result: Result, device: str) -> HeaderList:
    """Return the headers about the work of a request. Times are whole milliseconds."""
    timings = result.timings
    parts = (
        (b"x-compute-time", timings.total_s),
        (b"x-total-time", timings.total_s),
        (b"x-tokenization-time", timings.tokenize_s),
        (b"x-queue-time", timings.queue_s),
        (b"x-inference-time", timings.inference_s),
    )
    return [
        (b"x-compute-type", device.encode("ascii")),
        (b"x-compute-characters", b"%d" % sum(request.sizes)),
        (b"x-compute-tokens", b"%d" % result.token_count),
        *((name, b"%d" % round(seconds * 1000)) for name, seconds in parts),
    ]


TEI_HEADERS = (
    "x-compute-type",
    "x-compute-characters",
    "x-compute-tokens",
    "x-compute-time",
    "x-total-time",
    "x-tokenization-time",
    "x-queue-time",
    "x-inference-time",
)
TEI_STYLE = ResponseStyle(
    Component("TeiProblem", {"error": str, "error_type": str}),
    tei_response,
    tei_status,
    tei_headers,
    TEI_HEADERS,
)


def with_parameters(json: Json, parameters: Json) -> Json:
    """Return the body with the keys of `parameters` added that the body itself does not have."""
    return {**parameters, **{name: value for name, value in json.items() if value is not None}}


def read_parameters(json: Json) -> Json:
    """Return the options in the object `parameters`, or no options if the object is absent.

    Raises `InvalidRequest`.
    """
    parameters = json.get(PARAMETERS)
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise invalid("parameters", f"must be an object, not {kind_of(parameters)}.")
    return {name: value for name, value in parameters.items() if name not in NO_OPTIONS}


class TeiBody(InferenceBody):
    """A body on one of TEI's routes.

    Options may also be in `parameters`, where Hugging Face's clients put them.
    """

    style = TEI_STYLE
    harmless = HUGGING_FACE
    also_read = frozenset({PARAMETERS})

    @classmethod
    def parse(cls, json: Json, options: DialectOptions) -> Asked:
        parameters = read_parameters(json)
        if parameters:
            cls({**json, **parameters}, options).read()  # checks parameters that the body overrides too
            json = with_parameters(json, parameters)
        return cls(json, options).read()

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        unknown, parameters = super().unknown_fields(json), json.get(PARAMETERS)
        if isinstance(parameters, dict):
            options = cls.known - NO_OPTIONS
            unknown += [f"{PARAMETERS}.{name}" for name in parameters if name not in options]
        return unknown

    @classmethod
    def schema(cls, settings: ServerSettings) -> Schema:
        schema = dict(super().schema(settings))
        options = {name: each for name, each in schema["properties"].items() if name not in NO_OPTIONS}
        text = "The place of the same options in Hugging Face's clients. Those of the body take precedence."
        parameters = of_the_model(an_object((), options, nullable=True), text)
        return {**schema, "properties": {**schema["properties"], PARAMETERS: parameters}}
