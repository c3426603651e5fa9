"""Cohere's `/rerank`, `/embed`, `/tokenize` and `/detokenize`.

Source: the cohere package, versions 5 to 7, and the API reference. `embedding_types` of `/embed` asks for
several encodings at once. Without this field, version 1 returns plain floats.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from vecmill.errors import InvalidRequest
from vecmill.requests import Detokenize, Embed, TextOptions, Tokenize
from vecmill.results import DetokenizeResult, EmbedResult, TokenizeResult
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.dialect import (
    COHERE_TOKENIZE,
    RERANK_PATHS,
    TOKENIZE_PATHS,
    Asked,
    Envelope,
    InferenceBody,
    InferenceRoute,
)
from vecmill_server.dialects.embedding_encodings import (
    ENCODING_LIST,
    ENCODING_NAMES,
    encode_all,
    named_encoding,
    to_encoding_names,
)
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.rerank_body import RerankRequest
from vecmill_server.dialects.response_parts import text_pieces
from vecmill_server.dialects.truncated_inputs import with_truncated

_PARTS = json_schema.like({"content": {"type": "array", "minItems": 1, "items": text_fields.TEXT_OBJECT}})
_INPUTS: Schema = {"type": "array", "minItems": 1, "items": _PARTS}
_META = {"api_version": {"version": str}}
_API_VERSION = {"api_version": {"version": "1"}}


def _to_parts_text(item: JsonValue, field: str) -> str:
    """Return the text of `{"content": [{"type": "text", "text": ...}]}`."""
    content = item.get("content") if isinstance(item, dict) else None
    if not isinstance(content, list) or not content:
        raise InvalidRequest(f"`{field}.content` must be a list of at least one part.", field=field)
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            raise InvalidRequest(
                f'`{field}.content` must hold only {{"type": "text", "text": a string}}: this server reads '
                "only text.",
                field=field,
            )
    return "\n".join(part["text"] for part in content)


_TEXTS = fields.optional(
    ("texts",), json_schema.nullable(json_schema.TEXTS), fields.texts_of(fields.to_string)
)
_IN_PARTS = fields.optional(
    ("inputs",),
    json_schema.nullable(_INPUTS),
    fields.texts_of(_to_parts_text),
    "Texts in parts, if there are no `texts`.",
)


def _read_texts(body: RequestBody) -> tuple[str, ...]:
    texts, inputs = _TEXTS.read(body), _IN_PARTS.read(body)
    found = texts or inputs
    if found is None:
        raise fields.invalid("texts", "is required: a list of strings.")
    return found


_BY_TYPE = json_schema.an_object(
    (),
    {name: [str] if name == "base64" else [[float]] for name in ENCODING_NAMES},
)


def _describe_response(kind: str, embeddings: Any) -> Schema:
    images = json_schema.described(int, "Always 0; only in version 2.")
    units = json_schema.an_object(("input_tokens",), {"input_tokens": int, "image_tokens": images})
    return with_truncated(
        {
            "id": str,
            "texts": [str],
            "meta": {**_META, "billed_units": units},
            "response_type": kind,
            "embeddings": embeddings,
        }
    )


_V2_RESPONSE = Component("CohereEmbedResponse", _describe_response("embeddings_by_type", _BY_TYPE))
_FLOATS_RESPONSE = Component("CohereEmbedFloatsResponse", _describe_response("embeddings_floats", [[float]]))
_V1_RESPONSE = Component("CohereEmbedV1Response", json_schema.any_of(_V2_RESPONSE, _FLOATS_RESPONSE))


def _write_embeddings(
    request: Embed,
    names: tuple[str, ...],
    version: str,
    units: Mapping[str, int],
    result: EmbedResult,
    envelope: Envelope,
) -> JsonValue:
    embeddings: Any = result.embeddings
    if names:
        embeddings = encode_all({name: named_encoding(name) for name in names}, result)
    return {
        "id": f"embd-{envelope.request_id}",
        "texts": list(request.inputs),
        "meta": {
            "api_version": {"version": version},
            "billed_units": {"input_tokens": result.token_count, **units},
        },
        "response_type": "embeddings_by_type" if names else "embeddings_floats",
        "embeddings": embeddings,
    }


class CohereEmbedRequest(InferenceBody):
    """The body of `/v2/embed`."""

    priority = text_fields.PRIORITY
    images = fields.refused(
        "images",
        "`images` are not embedded on this route. Send pictures to /v1/embeddings.",
        "/v1/embeddings takes pictures.",
    )
    texts = Field({**_TEXTS.properties, **_IN_PARTS.properties}, _read_texts)
    input_type = text_fields.purpose("input_type")
    truncation = text_fields.TRUNCATION
    dimensions = text_fields.DIMENSIONS
    max_tokens = fields.count(
        "max_tokens", note="The number of tokens that texts are cut to; 0 means no limit."
    )
    embedding_types = fields.optional(
        ("embedding_types",),
        json_schema.nullable(ENCODING_LIST),
        to_encoding_names,
        "The encodings of the embeddings.",
    ).otherwise(())
    rules = json_schema.all_of(
        json_schema.any_of(
            {"required": ["texts"], "properties": {"texts": json_schema.TEXTS}},
            {"required": ["inputs"], "properties": {"inputs": _INPUTS}},
        )
    )
    responses: ClassVar[tuple[Any, ...]] = (_V2_RESPONSE,)

    def read(self) -> Asked:
        names = self.embedding_types or ("float",)
        return self.ask(names, "2", {"image_tokens": 0})

    def ask(self, names: tuple[str, ...], version: str, units: Mapping[str, int]) -> Asked:
        """Return the request; its result is written in the encodings `names`."""
        dtypes = tuple(OutputDtype(name) for name in names if name != "base64") or (OutputDtype.FLOAT,)
        truncation = self.truncation.within(self.max_tokens)
        options = TextOptions(purpose=self.input_type, truncation=truncation)
        request = Embed(self.texts, self.dimensions, dtypes=dtypes, options=options)
        field = "texts" if self.json.get("texts") is not None else "inputs"
        write = partial(_write_embeddings, request, names, version, units)
        return self.asked(request, write, input=field)


class CohereEmbedV1Request(CohereEmbedRequest):
    """The body of `/v1/embed`, which has the same fields."""

    schema_name = "CohereEmbedRequest"
    responses = (_V1_RESPONSE,)

    def read(self) -> Asked:
        return self.ask(self.embedding_types, "1", {})


def _write_tokens(text: str, result: TokenizeResult, _envelope: Envelope) -> JsonValue:
    (tokens,) = result.tokens
    return {"tokens": tokens.ids, "token_strings": text_pieces(tokens, text), "meta": _API_VERSION}


class CohereTokenizeRequest(InferenceBody):
    """The body of `/v1/tokenize`. The strings of the tokens, joined, are the text."""

    needs_engine = False
    marks = COHERE_TOKENIZE
    text = fields.required_string("text")
    responses = (
        Component(
            "CohereTokenizeResponse",
            {"tokens": [int], "token_strings": [str], "meta": _META},
        ),
    )

    def read(self) -> Asked:
        text = self.text
        return self.asked(Tokenize((text,), special=False), partial(_write_tokens, text), input="text")


def _write_text(result: DetokenizeResult, _envelope: Envelope) -> JsonValue:
    return {"text": result.texts[0], "meta": _API_VERSION}


class DetokenizeRequest(InferenceBody):
    """The body of `/v1/detokenize`."""

    needs_engine = False
    tokens = text_fields.token_ids("tokens")
    responses: ClassVar[tuple[Any, ...]] = (
        Component("CohereDetokenizeResponse", {"text": str, "meta": _META}),
    )

    def read(self) -> Asked:
        return self.asked(Detokenize((self.tokens,)), _write_text)


ROUTES = (
    InferenceRoute("rerank", RERANK_PATHS, "Score documents against a query", (RerankRequest,)),
    InferenceRoute("embed", ("/v1/embed",), "Embed texts, as version 1", (CohereEmbedV1Request,)),
    InferenceRoute("embed", ("/v2/embed",), "Embed texts, as version 2", (CohereEmbedRequest,)),
    InferenceRoute("tokenize", TOKENIZE_PATHS, "", (CohereTokenizeRequest,)),
    InferenceRoute("detokenize", ("/v1/detokenize",), "Text of token ids", (DetokenizeRequest,)),
)
