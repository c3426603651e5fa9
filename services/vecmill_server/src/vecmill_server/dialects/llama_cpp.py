"""llama.cpp's server: `/embedding`, `content` in place of `input` at `/embeddings`, and `/tokenize`.

An input may also be a prompt with a picture, `{"prompt_string": ..., "multimodal_data": [...]}`.

Source: the answers of its server. Its `/detokenize` is vLLM's, its `/reranking` Cohere's. Texts that
are too long are refused by default, as its server does.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from vecmill.errors import InputTooLong
from vecmill.requests import TextOptions, Tokenize, Truncation
from vecmill.results import EmbedResult, TokenizeResult, Tokens
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.error_responses import ErrorResponse, make_response, message_of, spec_of
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects import fields, known_fields, picture_fields, text_fields
from vecmill_server.dialects.dialect import (
    EMBEDDINGS_PATHS,
    LLAMA_EMBEDDINGS,
    LLAMA_TOKENIZE,
    USUAL_STYLE,
    Asked,
    Envelope,
    InferenceBody,
    InferenceRoute,
    Marks,
)
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.response_parts import Written, text_pieces

CONTENT = "content"

_ERROR_TYPES: Mapping[int, str] = {
    404: "not_found_error",
    500: "server_error",
    503: "unavailable_error",
    504: "server_error",
}


def llama_response(error: BaseException) -> ErrorResponse:
    """Return the response for `error` with the status as a number, which its clients read."""
    spec = spec_of(error)
    kind, message = _ERROR_TYPES.get(spec.status, spec.type), message_of(error)
    sizes = {}
    if isinstance(error, InputTooLong):
        kind = "exceed_context_size_error"
        sizes = {"n_prompt_tokens": error.token_count, "n_ctx": error.max_tokens}
        message = (
            f"input ({error.token_count} tokens) is larger than the max context size ({error.max_tokens} "
            f"tokens). skipping {error.where}"
        )
    problem = {"code": spec.status, "message": message, "type": kind, **sizes}
    return make_response(error, spec.status, {"error": problem})


LLAMA_STYLE = replace(
    USUAL_STYLE,
    error_body=Component(
        "LlamaProblem",
        {
            "error": json_schema.an_object(
                ("code", "message", "type"),
                {"code": int, "message": str, "type": str, "n_prompt_tokens": int, "n_ctx": int},
            )
        },
    ),
    respond=llama_response,
)


def _read_options(body: RequestBody) -> TextOptions:
    options = text_fields.TRUNCATION_OPTIONS.read(body)
    names = ("truncate", "truncation", "truncate_prompt_tokens")
    if any(body.json.get(name) is not None for name in names):
        return options
    return replace(options, truncation=replace(options.truncation, is_allowed=False))


_UNCUT = TextOptions(truncation=Truncation(is_allowed=False))


def _write_embeddings(result: EmbedResult, _envelope: Envelope) -> JsonValue:
    rows = result.embeddings
    return [{"index": index, "embedding": rows[index : index + 1]} for index in range(len(rows))]


class LlamaInputRequest(InferenceBody):
    """The body of `/embedding`. Each text gets a list of embeddings, here of one."""

    inputs: ClassVar[Field[Any]] = picture_fields.embed_inputs("input")
    embd_normalize = text_fields.EMBD_NORMALIZE
    dimensions = text_fields.DIMENSIONS
    encoding_format = fields.choice(
        "encoding_format", choices=("float", "base64"), note="Ignored: the embeddings are lists of numbers."
    )
    options = Field(text_fields.TRUNCATION_OPTIONS.properties, _read_options, absent=_UNCUT)
    style = LLAMA_STYLE
    harmless = known_fields.CALLER
    responses: ClassVar[tuple[Any, ...]] = (
        Component("LlamaEmbeddingResponse", [{"index": int, "embedding": [[float]]}]),
    )
    input_name: ClassVar[str] = "input"

    def read(self) -> Asked:
        _ = self.encoding_format
        normalize = self.embd_normalize is not False
        request = picture_fields.request_for(self.inputs, self.dimensions, normalize, options=self.options)
        return self.asked(request, _write_embeddings, input=self.input_name)


class LlamaContentRequest(LlamaInputRequest):
    """The same body with `content` in place of `input`, also at OpenAI's paths."""

    inputs: ClassVar[Field[Any]] = picture_fields.embed_inputs(CONTENT)
    marks = LLAMA_EMBEDDINGS
    input_name = CONTENT


def _write_object(result: EmbedResult, _envelope: Envelope) -> JsonValue:
    return {"embedding": result.embeddings[0]}


def _write_objects(result: EmbedResult, _envelope: Envelope) -> JsonValue:
    return {"results": [{"embedding": row} for row in result.embeddings]}


class LlamafileRequest(LlamaContentRequest):
    """The body of llamafile's `/embedding`, which is that of llama.cpp and has an older response.

    Nothing tells its clients from those of llama.cpp, so it has a path of its own.
    """

    marks = Marks()
    responses = (
        Component("LlamafileResponse", {"embedding": [float]}),
        Component("LlamafileResponses", {"results": [{"embedding": [float]}]}),
    )

    def read(self) -> Asked:
        is_list = isinstance(self.json.get(CONTENT), list)
        return replace(super().read(), write=_write_objects if is_list else _write_object)


def _write_tokens(content: str, with_pieces: bool, result: TokenizeResult, _envelope: Envelope) -> JsonValue:
    (tokens,) = result.tokens
    return {"tokens": _with_pieces(content, tokens) if with_pieces else tokens.ids}


def _with_pieces(content: str, tokens: Tokens) -> JsonValue:
    pieces = text_pieces(tokens, content)

    def write(index: int) -> dict[str, Any]:
        token = tokens[index]
        return {"id": token.token_id, "piece": token.piece if token.is_special else pieces[index]}

    return Written(len(tokens), write)


class LlamaTokenizeRequest(InferenceBody):
    """The body of `/tokenize`, recognised by the key `content`."""

    needs_engine = False
    content = fields.required_string(CONTENT)
    special = fields.flag(
        "add_special", note="Whether to add the model's special tokens; false by default."
    ).otherwise(False)
    with_pieces = fields.flag(
        "with_pieces", note="Whether to return the part of the text of each token too."
    ).otherwise(False)
    parse_special = fields.fixed(
        "parse_special",
        json_schema.ALWAYS,
        fields.to_flag,
        "`parse_special` must be true: special tokens that are written in a text are read as special tokens.",
        "Special tokens that are written in the text are always read as special tokens.",
    )
    style = LLAMA_STYLE
    marks = LLAMA_TOKENIZE
    responses = (
        Component(
            "LlamaTokenizeResponse", {"tokens": json_schema.any_of([int], [{"id": int, "piece": str}])}
        ),
    )

    def read(self) -> Asked:
        content, special, with_pieces = self.content, self.special, self.with_pieces
        write = partial(_write_tokens, content, with_pieces)
        return self.asked(Tokenize((content,), special), write, input=CONTENT)


ROUTES = (
    InferenceRoute("embeddings", ("/embedding",), "Embed texts", (LlamaInputRequest,)),
    InferenceRoute("embeddings", (*EMBEDDINGS_PATHS, "/embedding"), "", (LlamaContentRequest,)),
    InferenceRoute("embeddings", ("/llamafile/embedding",), "Embed texts, as llamafile", (LlamafileRequest,)),
    InferenceRoute("tokenize", ("/tokenize",), "", (LlamaTokenizeRequest,)),
)
