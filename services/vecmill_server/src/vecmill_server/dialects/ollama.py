"""Ollama's `/api/embed`, `/api/embeddings`, `/api/show` and `/api/pull`, and `/api/rerank`.

Source: its server, API reference and Python package.

Times are whole nanoseconds. A request without texts, by which clients load a model, gets a response without
embeddings.
"""

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

import numpy as np

from vecmill.mill import Mill
from vecmill.models import ModelDescription
from vecmill.operations.capabilities import require_task
from vecmill.requests import Caller, Embed, Request, TextOptions, TextOrIds, Truncation
from vecmill.results import NO_TIME, EmbedResult
from vecmill.values.aliases import JsonValue
from vecmill.values.task import Task
from vecmill_server.base.error_responses import ErrorResponse, sentence_response
from vecmill_server.base.errors import UnknownModel
from vecmill_server.base.json_io import kind_of
from vecmill_server.base.json_schema import (
    LARGEST_WHOLE_NUMBER,
    OPTIONAL_COUNT,
    Component,
    Schema,
    any_of,
    described,
)
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects import text_fields
from vecmill_server.dialects.dialect import (
    SENTENCE_STYLE,
    Asked,
    CompositeRequest,
    CompositeResult,
    Envelope,
    InferenceBody,
    InferenceRoute,
    Marks,
)
from vecmill_server.dialects.fields import Field, RequestBody, invalid, optional, refused, string, to_count
from vecmill_server.dialects.known_fields import OLLAMA_PULL, OLLAMA_SHOW
from vecmill_server.dialects.rerank_body import RerankRequest
from vecmill_server.dialects.truncated_inputs import with_truncated


def ollama_response(error: BaseException) -> ErrorResponse:
    """Return the response for `error`.

    For an unknown model it has Ollama's message, which some clients look for.
    """
    if isinstance(error, UnknownModel):
        return sentence_response(error, f'model "{error.name}" not found, try pulling it first')
    return sentence_response(error)


OLLAMA_STYLE = replace(SENTENCE_STYLE, respond=ollama_response)


@dataclass(frozen=True, slots=True)
class EmbedNothing(CompositeRequest[EmbedResult]):
    """A request without texts to a model that embeds."""

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.EMBED,)

    @property
    def parts(self) -> tuple[Request[Any], ...]:
        """A request for the embeddings of no texts."""
        return (Embed(()),)

    async def run(self, mill: Mill, caller: Caller) -> EmbedResult:
        """Return no embeddings. Raises `NotReady` until the settings are read, and `UnsupportedTask`."""
        require_task(mill.description, Task.EMBED, asked="embed texts")
        return EmbedResult(np.empty((0, mill.description.dim), np.float32), (), NO_TIME)


def _describe_texts(settings: ServerSettings) -> Schema:
    none = {"type": "array", "nullable": True, "maxItems": 0, "items": {}}
    return described(
        any_of(*text_fields.describe_inputs(settings)["anyOf"], none), "Texts; without any, no embeddings."
    )


def _describe_prompt(settings: ServerSettings) -> Schema:
    return described(_describe_texts(settings), "Another name of `input`, which takes precedence.")


def _read_texts(body: RequestBody) -> tuple[str, tuple[TextOrIds, ...]]:
    """Return the texts, and the name of their field: that of this route or that of the older one."""
    names = [name for name in ("input", "prompt") if body.json.get(name) not in (None, [])]
    found = [(name, text_fields.read_inputs(body, name)) for name in names]
    return found[0] if found else ("input", ())


def _write_embeddings(model: str | None, result: EmbedResult, envelope: Envelope) -> JsonValue:
    return {
        "model": model or envelope.model,
        "embeddings": result.embeddings,
        "total_duration": round(result.timings.total_s * 1e9),
        "load_duration": 0,
        "prompt_eval_count": result.token_count,
    }


def _to_context(value: JsonValue, field: str) -> int | None:
    if not isinstance(value, dict):
        raise invalid(field, f"must be an object, not {kind_of(value)}.")
    size = value.get("num_ctx")
    return None if size is None else to_count(size, f"{field}.num_ctx")


# The other options are about the generation of text, or the use of memory and cores.
_CONTEXT = optional(
    ("options",),
    {"type": "object", "nullable": True, "properties": {"num_ctx": OPTIONAL_COUNT}},
    _to_context,
    "Only `num_ctx` matters: the number of tokens that texts are cut to.",
    depends_on_model=True,
)


# The units of durations in Go's notation, in seconds.
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = r"(\d{1,12}(?:\.\d{0,9})?)(ns|us|µs|ms|s|m|h)"
# There are six units. A longer text would hold the interpreter while it is matched.
_DURATION = rf"[+-]?(?:0|(?:{_PART}){{1,6}})"
# The usual durations, for the description of the API.
_DESCRIBED = "^-?[0-9]{1,6}(ms|s|m|h)$"


def to_duration_s(value: JsonValue, field: str) -> float:
    """Return a duration of Ollama in seconds: a number of seconds, or such as "1h30m".

    A negative duration is endless.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return math.inf if value < 0 or value > LARGEST_WHOLE_NUMBER else float(value)
    if not isinstance(value, str) or not re.fullmatch(_DURATION, value):
        raise invalid(field, 'must be a number of seconds, or a duration such as "5m" or "1h30m".')
    if value.startswith("-"):
        return math.inf
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, value))


_KEEP_ALIVE = optional(
    ("keep_alive",),
    {**any_of({"type": "number"}, {"type": "string", "pattern": _DESCRIBED}), "nullable": True},
    to_duration_s,
    "With a memory budget, the time that the model is kept after this request, in seconds or as in 5m, at "
    "most as long as the server keeps it anyway, except with an admin key. Negative means endless.",
)


_IMAGES = refused(
    "images",
    "`images` are not embedded on this route, and Ollama embeds none. Send pictures to /v1/embeddings.",
    "/v1/embeddings takes pictures.",
)


class OllamaEmbedRequest(InferenceBody):
    """The body of `/api/embed`. The embeddings have length 1 for any model."""

    texts = Field({"input": _describe_texts, "prompt": _describe_prompt}, _read_texts)
    images = _IMAGES
    truncation = text_fields.TRUNCATION
    context = _CONTEXT
    dimensions = text_fields.DIMENSIONS
    keep_s = _KEEP_ALIVE
    style = OLLAMA_STYLE
    responses = (
        Component(
            "OllamaEmbedResponse",
            with_truncated(
                {
                    "model": str,
                    "embeddings": [[float]],
                    "total_duration": int,
                    "load_duration": int,
                    "prompt_eval_count": int,
                }
            ),
        ),
    )

    def read(self) -> Asked:
        (name, inputs), write = self.texts, partial(_write_embeddings, self.model)
        options = TextOptions(truncation=self.truncation.within(self.context))
        request = Embed(inputs, self.dimensions, normalize=True, options=options)
        return self.asked(request if inputs else EmbedNothing(), write, input=name)


def _write_embedding(result: EmbedResult, _envelope: Envelope) -> JsonValue:
    return {"embedding": result.embeddings[0] if len(result.embeddings) else []}


class OllamaEmbeddingsRequest(InferenceBody):
    """The body of `/api/embeddings`, the older route.

    It returns one embedding, without added normalisation.
    """

    prompt = string("prompt", "input", note="A text; without one, no embedding.")
    images = _IMAGES
    context = _CONTEXT
    keep_s = _KEEP_ALIVE
    style = OLLAMA_STYLE
    responses = (Component("OllamaEmbeddingsResponse", with_truncated({"embedding": [float]})),)

    def read(self) -> Asked:
        prompt, context = self.prompt, self.context
        if prompt is None:
            return self.asked(EmbedNothing(), _write_embedding)
        options = TextOptions(truncation=Truncation(max_tokens=context))
        name = "input" if self.json.get("prompt") is None else "prompt"
        return self.asked(Embed((prompt,), options=options), _write_embedding, input=name)


@dataclass(frozen=True, slots=True)
class Show(CompositeRequest[CompositeResult]):
    """A request for the description of a model."""

    async def run(self, mill: Mill, caller: Caller) -> CompositeResult:
        """Return the description. Raises `NotReady` until the model directory has been read."""
        return CompositeResult(mill.description)


def describe_details(architecture: str) -> dict[str, object]:
    """Return the details of a model of this architecture in Ollama's format."""
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": architecture,
        "families": [architecture],
        "parameter_size": "",
        "quantization_level": "",
    }


DETAILS = {
    **dict.fromkeys(("parent_model", "format", "family", "parameter_size", "quantization_level"), str),
    "families": [str],
}


def _write_shown(shown: CompositeResult, envelope: Envelope) -> JsonValue:
    description: ModelDescription = shown.value
    architecture, is_embedder = description.architecture, description.task is Task.EMBED
    return {
        "license": "",
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": describe_details(architecture),
        "model_info": {
            "general.architecture": architecture,
            "general.basename": envelope.model,
            # LocalAI's name, which RAGFlow reads.
            "general.context_length": description.max_tokens,
            f"{architecture}.context_length": description.max_tokens,
            f"{architecture}.embedding_length": description.dim,
        },
        "capabilities": ["embedding" if is_embedder else str(description.task)],
        "modified_at": datetime.fromtimestamp(envelope.created, UTC).isoformat(),
    }


_NAME = string(
    "model",
    "name",
    note="The name of the model, or an alias; the first model by default.",
    depends_on_model=True,
)


class OllamaShowRequest(InferenceBody):
    """The body of `/api/show`, which describes a model."""

    needs_engine = False
    needs_model = False
    model = _NAME
    style = OLLAMA_STYLE
    harmless = OLLAMA_SHOW
    responses = (
        Component(
            "OllamaShowResponse",
            {
                **dict.fromkeys(("license", "modelfile", "parameters", "template", "modified_at"), str),
                "details": DETAILS,
                "model_info": {"type": "object", "additionalProperties": True},
                "capabilities": [str],
            },
        ),
    )

    def read(self) -> Asked:
        return self.asked(Show(), _write_shown)


def _write_pulled(_shown: CompositeResult, _envelope: Envelope) -> JsonValue:
    return {"status": "success"}


class OllamaPullRequest(InferenceBody):
    """The body of `/api/pull`, by which clients make sure that there is a model.

    Nothing is downloaded. With an admin key and a memory budget, the model is loaded, and served again if it
    was removed. The error message for an unknown model lists the served models.
    """

    loads_for_admin = True

    needs_engine = False
    needs_model = False
    model = _NAME
    # Ollama's own message for an unknown model advises to pull it.
    style = SENTENCE_STYLE
    harmless = OLLAMA_PULL
    responses = (Component("OllamaPullResponse", {"status": str}),)

    def read(self) -> Asked:
        return self.asked(Show(), _write_pulled)


class OllamaRerankRequest(RerankRequest):
    """The body of `/api/rerank`, which Dify sends to an Ollama server. Ollama itself has no such path."""

    marks = Marks()
    style = OLLAMA_STYLE


class OllamaDeleteRequest(InferenceBody):
    """The body of `/api/delete`, which takes a model out of what is served. No file is deleted."""

    model = _NAME
    style = OLLAMA_STYLE

    def read(self) -> Asked:
        return self.asked(Show(), _write_pulled)


ROUTES = (
    InferenceRoute("embed", ("/api/embed",), "Embed texts", (OllamaEmbedRequest,)),
    InferenceRoute("embeddings", ("/api/embeddings",), "Embed a text", (OllamaEmbeddingsRequest,)),
    InferenceRoute("show", ("/api/show",), "One model, in Ollama's format", (OllamaShowRequest,)),
    InferenceRoute("pull", ("/api/pull",), "Whether there is a model", (OllamaPullRequest,)),
    InferenceRoute(
        "rerank", ("/api/rerank",), "Score documents, with Ollama's errors", (OllamaRerankRequest,)
    ),
)
