"""Cohere's `/rerank`, `/embed`, `/tokenize` and `/detokenize`.

Source: the cohere package, versions 5 to 7, and the API reference. `embedding_types` of `/embed` asks for
several encodings at once. Without this field, version 1 returns plain floats.
"""

from collections.abc import Mapping
from functools import partial
from itertools import compress
from typing import Any, ClassVar

from vecmill.requests import Detokenize, Embed, EmbedPictures, Picture, TextOptions, Tokenize
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
from vecmill_server.dialects.picture_fields import (
    CONTENT,
    PICTURES,
    Inputs,
    has_pictures,
    request_for,
    to_contents,
    to_pictures,
)
from vecmill_server.dialects.rerank_body import RerankRequest
from vecmill_server.dialects.response_parts import text_pieces
from vecmill_server.dialects.truncated_inputs import with_truncated

_PARTS = json_schema.like({"content": CONTENT})
_INPUTS: Schema = {"type": "array", "minItems": 1, "items": _PARTS}
_META = {"api_version": {"version": str}}
_API_VERSION = {"api_version": {"version": "1"}}


_TEXTS = fields.optional(
    ("texts",), json_schema.nullable(json_schema.TEXTS), fields.texts_of(fields.to_string)
)
_IN_PARTS = fields.optional(
    ("inputs",),
    json_schema.nullable(_INPUTS),
    to_contents,
    "Texts and pictures in parts, if there are no `texts`.",
)
_IMAGES = fields.optional(
    ("images",), json_schema.nullable(PICTURES), to_pictures, "Pictures, if there are no `texts`."
)
# In the order of precedence, except that pictures stand alone.
_FIELDS: Mapping[str, Field[Any]] = {"texts": _TEXTS, "inputs": _IN_PARTS, "images": _IMAGES}


def _read_inputs(body: RequestBody) -> tuple[str, Inputs]:
    """Return the inputs, and the name of their field."""
    found = {name: value for name, field in _FIELDS.items() if (value := field.read(body)) is not None}
    if not found:
        raise fields.invalid("texts", "is required: a list of strings.")
    if "images" in found and len(found) > 1:
        raise fields.invalid("images", "stand beside texts: send each in a request of its own.")
    return next(iter(found.items()))


_BY_TYPE = json_schema.an_object(
    (),
    {name: [str] if name == "base64" else [[float]] for name in ENCODING_NAMES},
)


def _describe_response(kind: str, embeddings: Any) -> Schema:
    image_tokens = json_schema.described(int, "Only in version 2, and where there are pictures.")
    images = json_schema.described(int, "The number of pictures, if there are any.")
    units = json_schema.an_object(
        ("input_tokens",), {"input_tokens": int, "image_tokens": image_tokens, "images": images}
    )
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


def _count_units(
    request: Embed | EmbedPictures, units: Mapping[str, int], result: EmbedResult
) -> dict[str, int]:
    """Return the counts of a result. `units` are those beside the tokens of texts alone."""
    pictures = [isinstance(each, Picture) for each in request.inputs]
    if not any(pictures):
        return {"input_tokens": result.token_count, **units}
    of_pictures = sum(compress(result.token_counts, pictures))
    return {
        "input_tokens": result.token_count - of_pictures,
        "image_tokens": of_pictures,
        "images": sum(pictures),
    }


def _write_embeddings(
    request: Embed | EmbedPictures,
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
        "texts": [each for each in request.inputs if isinstance(each, str)],
        "meta": {
            "api_version": {"version": version},
            "billed_units": _count_units(request, units, result),
        },
        "response_type": "embeddings_by_type" if names else "embeddings_floats",
        "embeddings": embeddings,
    }


class CohereEmbedRequest(InferenceBody):
    """The body of `/v2/embed`."""

    priority = text_fields.PRIORITY
    inputs = Field(
        {key: schema for each in _FIELDS.values() for key, schema in each.properties.items()}, _read_inputs
    )
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
            {"required": ["images"], "properties": {"images": PICTURES}},
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
        value = self.json.get("input_type")
        is_image = isinstance(value, str) and value.lower() == "image"
        purpose = None if is_image else self.input_type
        field, inputs = self.inputs
        if is_image and not has_pictures(inputs):
            purpose = self.input_type  # which is no purpose of texts
        options = TextOptions(purpose=purpose, truncation=truncation)
        request = request_for(inputs, self.dimensions, dtypes=dtypes, options=options)
        write = partial(_write_embeddings, request, names, version, units)
        return self.asked(request, write, input=field, dtypes="embedding_types")


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
    InferenceRoute("embed", ("/v1/embed",), "Embed texts or pictures, as version 1", (CohereEmbedV1Request,)),
    InferenceRoute("embed", ("/v2/embed",), "Embed texts or pictures, as version 2", (CohereEmbedRequest,)),
    InferenceRoute("tokenize", TOKENIZE_PATHS, "", (CohereTokenizeRequest,)),
    InferenceRoute("detokenize", ("/v1/detokenize",), "Text of token ids", (DetokenizeRequest,)),
)
