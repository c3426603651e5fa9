"""What `dialects.cohere` reads and writes."""

from vecmill_server.dialects.fields import ROW_TYPES
from vecmill_server.openapi.fields import (
    DIMENSIONS,
    INPUT_TYPE,
    MODEL,
    ROW_TYPE_LIST,
    TEXT_OBJECT,
    TRUNCATION,
)
from vecmill_server.openapi.operations import post
from vecmill_server.openapi.vocabulary import (
    COUNT,
    NOTHING,
    NUMBER,
    OPTIONAL_COUNT,
    STRING,
    TEXTS,
    TOKEN_IDS,
    Family,
    Schema,
    an_object,
    any_of,
    described,
    list_of,
    of_the_model,
    reference,
)
from vecmill_server.settings import ServerSettings


def describe_cohere(settings: ServerSettings) -> Family:
    """`/v1/embed`, `/v2/embed` and `/v1/detokenize`; `/v1/tokenize` is shared with vLLM."""
    request = reference("CohereEmbedRequest")
    first = post("Embed texts, as version 1", request, reference("CohereEmbedV1Response"))
    second = post("Embed texts, as version 2", request, reference("CohereEmbedResponse"))
    detokenize = post(
        "Text of token ids", reference("DetokenizeRequest"), reference("CohereDetokenizeResponse")
    )
    return Family(
        {
            "/v1/embed": {"post": first},
            "/v2/embed": {"post": second},
            "/v1/detokenize": {"post": detokenize},
        },
        {**_embed(), **_tokens()},
    )


def _embed() -> dict[str, Schema]:
    parts = an_object(("content",), {"content": {"type": "array", "minItems": 1, "items": TEXT_OBJECT}})
    inputs = {"type": "array", "minItems": 1, "items": parts}
    properties = {
        "texts": {**TEXTS, "nullable": True},
        "inputs": {**inputs, "nullable": True, "description": "Texts in parts, if there are no `texts`."},
        "images": described(NOTHING, "This server reads text alone."),
        **MODEL,
        **INPUT_TYPE,
        **TRUNCATION,
        **DIMENSIONS,
        "max_tokens": described(OPTIONAL_COUNT, "Texts are cut to so many tokens; 0 does not."),
        "embedding_types": {**ROW_TYPE_LIST, "nullable": True, "description": "Which kinds of rows to give."},
    }
    there = any_of(
        {"required": ["texts"], "properties": {"texts": TEXTS}},
        {"required": ["inputs"], "properties": {"inputs": inputs}},
    )
    by_type = an_object(
        (), {name: list_of(STRING if name == "base64" else list_of(NUMBER)) for name in ROW_TYPES}
    )
    return {
        "CohereEmbedRequest": an_object((), properties, allOf=[there]),
        "CohereEmbedV1Response": any_of(
            reference("CohereEmbedResponse"), reference("CohereEmbedFloatsResponse")
        ),
        "CohereEmbedFloatsResponse": _response("embeddings_floats", list_of(list_of(NUMBER))),
        "CohereEmbedResponse": _response("embeddings_by_type", by_type),
    }


def _response(kind: str, embeddings: Schema) -> Schema:
    images = described(COUNT, "Always 0, and in version 2 alone.")
    units = an_object(("input_tokens",), {"input_tokens": COUNT, "image_tokens": images})
    meta = an_object(("api_version", "billed_units"), {"api_version": _version(), "billed_units": units})
    properties = {
        "id": STRING,
        "texts": list_of(STRING),
        "meta": meta,
        "response_type": {"type": "string", "enum": [kind]},
        "embeddings": embeddings,
    }
    return an_object(tuple(properties), properties)


def _tokens() -> dict[str, Schema]:
    ids = of_the_model(TOKEN_IDS, "The model's own ids.")
    meta = an_object(("api_version",), {"api_version": _version()})
    tokens = {"tokens": list_of(COUNT), "token_strings": list_of(STRING), "meta": meta}
    return {
        "DetokenizeRequest": an_object(("tokens",), {"tokens": ids, **MODEL}),
        "CohereDetokenizeResponse": an_object(("text", "meta"), {"text": STRING, "meta": meta}),
        "CohereTokenizeRequest": an_object(("text",), {"text": STRING, **MODEL}),
        "CohereTokenizeResponse": an_object(tuple(tokens), tokens),
    }


def _version() -> Schema:
    return an_object(("version",), {"version": STRING})
