"""Cohere's `/rerank`, which the clients of Jina, vLLM and Infinity use too, its `/embed` and its `/tokenize`.

Source: the cohere package, versions 5 to 7, and the API reference. `embedding_types` of `/embed` asks for
several encodings at once. Without this field, version 1 returns plain floats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from vecmill.errors import InvalidRequest
from vecmill.requests import Detokenize, Embed, Rerank, TextOptions, Tokenize
from vecmill.results import DetokenizeResult, EmbedResult, RerankResult, TokenizeResult
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.base.settings import RerankDocument, ServerSettings
from vecmill_server.dialects import fields, known_fields, text_fields
from vecmill_server.dialects.dialect import (
    COHERE_TOKENIZE,
    OTHER_RERANK,
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
from vecmill_server.dialects.fields import Field, Json, RequestBody
from vecmill_server.dialects.known_fields import TemplatedBody
from vecmill_server.dialects.response_parts import describe_envelope, text_pieces, write_envelope
from vecmill_server.dialects.truncated_inputs import with_truncated

_OF_PARTS = json_schema.an_object(
    ("content",),
    {"content": json_schema.any_of(str, [text_fields.TEXT_OBJECT])},
    **json_schema.without("text"),
)
_DOCUMENT = json_schema.any_of(str, text_fields.TEXT_OBJECT, _OF_PARTS)
_DOCUMENTS: Schema = {"type": "array", "minItems": 1, "items": _DOCUMENT}


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document: its text, and the JSON object that stands for it in a response."""

    text: str
    as_sent: JsonValue


def _to_rank_fields(value: JsonValue, field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise fields.invalid(field, "must be a list of names of fields.")
    return tuple(value)


_RANK_FIELDS = fields.optional(
    ("rank_fields",),
    {"type": "array", "nullable": True, "items": json_schema.STRING},
    _to_rank_fields,
    "The fields of the documents that are objects to read, in this order. Each document must have one.",
    depends_on_model=True,
).otherwise(())


def document_list(name: str) -> Field[list[RankedDocument]]:
    """Return the required documents to rank."""

    def read(body: RequestBody) -> list[RankedDocument]:
        value = body.json.get(name)
        if value is None:
            raise fields.invalid(name, "is required: a list of texts.")
        items, names = fields.to_items(value, name, "a list of texts"), _RANK_FIELDS.read(body)
        return [_to_document(item, names, f"{name}[{index}]") for index, item in enumerate(items)]

    return Field({name: _DOCUMENTS}, read, (name,))


def _read_query(body: RequestBody) -> str:
    query = body.json.get("query")
    if query is None:
        raise fields.invalid("query", "is required: a string.")
    return (
        _to_document(query, (), "query").text if isinstance(query, dict) else fields.to_string(query, "query")
    )


def _to_document(item: JsonValue, names: tuple[str, ...], field: str) -> RankedDocument:
    if isinstance(item, str):
        return RankedDocument(item, {"text": item})
    if isinstance(item, dict):
        text = _text_of_fields(item, names) if names else _text_of(item)
        if text is not None:
            return RankedDocument(text, item if isinstance(item.get("text"), str) else {**item, "text": text})
    wanted = " that has one of `rank_fields`" if names else ' like {"text": a string}'
    raise fields.invalid(field, f"must be a string or an object{wanted}.")


def _text_of(item: Json) -> str | None:
    text = item.get("text")
    if text is None:
        return _text_of_parts(item.get("content"))
    return text if isinstance(text, str) else None


def _text_of_fields(item: Json, names: tuple[str, ...]) -> str | None:
    """Return the values of these fields, one per line; `None` if no value is a string."""
    values = [value for value in map(item.get, names) if isinstance(value, str)]
    return "\n".join(values) if values else None


def _text_of_parts(content: JsonValue) -> str | None:
    """Return the text of `[{"type": "text", "text": ...}]`, vLLM's form of a document."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, dict) else None for part in content]
    whole = [text for text in texts if isinstance(text, str)]
    return "\n".join(whole) if len(whole) == len(texts) else None


TOP_NOTE = "The number of results, the best first; 0 returns all."


class RankedBody(TemplatedBody):
    """A body with a query and documents, which may be objects."""

    query = Field({"query": _DOCUMENT}, _read_query, ("query",))
    documents = document_list("documents")
    raw_scores = text_fields.RAW_SCORES
    options = text_fields.text_options(
        prompt_name=text_fields.PROMPT_NAME,
        prompt=text_fields.PROMPT,
        truncation=text_fields.TRUNCATION,
        **text_fields.PAIR_LIMITS,
    )
    rank_fields = _RANK_FIELDS
    instruction = text_fields.INSTRUCTION
    chunks = fields.count(
        "max_chunks_per_doc",
        note="The number of chunks that a document may be split into. The server does not split documents: "
        "with more than 1, a document that is too long is refused instead of cut.",
        depends_on_model=True,
    )
    harmless = known_fields.RERANK
    rules: ClassVar[Mapping[str, Any]] = json_schema.all_of(
        json_schema.not_both("prompt", "prompt_name"), json_schema.not_both("instruction", "prompt_name")
    )

    def read_request(self, documents: Sequence[RankedDocument]) -> Rerank:
        """Return the request to score `documents`."""
        texts, options, chunks = tuple(document.text for document in documents), self.options, self.chunks
        if chunks is not None and chunks > 1:
            options = replace(options, truncation=replace(options.truncation, is_allowed=False))
        return Rerank((self.query,), texts, self.raw_scores, self.instruction, options=options)


def describe_result(document: Any) -> Schema:
    """Return the schema of one result. `document` is the schema of the document in the result."""
    return json_schema.an_object(
        ("index", "relevance_score"), {"index": int, "relevance_score": float, "document": document}
    )


def write_results(
    result: RerankResult,
    limit: int | None,
    documents: Sequence[JsonValue] | None = None,
    *,
    score: str = "relevance_score",
    document: str = "document",
) -> list[dict[str, Any]]:
    """Write at most `limit` results, the best first, ties in input order.

    `score` and `document` are the names in each result, which has its document if documents are given.
    """
    positions = (-result.scores).argsort(kind="stable")[:limit].tolist()
    results: list[dict[str, Any]] = [{"index": index, score: result.scores[index]} for index in positions]
    if documents is not None:
        for each in results:
            each[document] = documents[each["index"]]
    return results


def _describe_ranking(settings: ServerSettings) -> Any:
    as_sent = json_schema.an_object(("text",), {"text": str}, additionalProperties=True)
    is_object = settings.rerank_document is RerankDocument.OBJECT
    return describe_envelope(
        "rerank",
        results=[describe_result(as_sent if is_object else str)],
        meta={
            "api_version": {"version": str},
            "billed_units": {"search_units": int, "input_tokens": int},
            "tokens": {"input_tokens": int, "output_tokens": int},
        },
    )


def _write_ranking(
    top_n: int | None, documents: Sequence[JsonValue] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    tokens = result.token_count
    return {
        **write_envelope(
            "rerank", "rerank", envelope, tokens, results=write_results(result, top_n, documents)
        ),
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1, "input_tokens": tokens},
            "tokens": {"input_tokens": tokens, "output_tokens": 0},
        },
    }


def _to_weights(value: JsonValue, field: str) -> tuple[float, float, float]:
    most = json_schema.LARGEST_WHOLE_NUMBER
    if isinstance(value, list) and len(value) == 3:
        dense, sparse, vectors = value
        if all(type(each) in (int, float) and 0 <= each <= most for each in value):
            return float(dense), float(sparse), float(vectors)
    raise fields.invalid(field, "must be three numbers that are not negative.")


_WEIGHTS = fields.optional(
    ("weights",),
    json_schema.nullable(
        {
            "type": "array",
            "minItems": 3,
            "maxItems": 3,
            "items": {"type": "number", "minimum": 0, "maximum": json_schema.LARGEST_WHOLE_NUMBER},
        }
    ),
    _to_weights,
    "The weights of the dense, sparse and multi-vector scores of BGE-M3, by default 0.4, 0.2 and 0.4.",
    depends_on_model=True,
)


class RerankRequest(RankedBody):
    """The body of `/rerank` from the clients of Cohere, Jina, vLLM and Infinity."""

    top_n = fields.count("top_n", note=TOP_NOTE)
    return_documents = fields.flag(
        "return_documents", note="Whether results have their documents."
    ).otherwise(False)
    weights = _WEIGHTS
    marks = OTHER_RERANK
    responses: ClassVar[tuple[Any, ...]] = (Component("RerankResponse", _describe_ranking),)

    def read(self) -> Asked:
        documents = self.documents
        request, returned = replace(self.read_request(documents), weights=self.weights), None
        if self.return_documents:
            is_plain = self.dialect_options.plain_documents
            returned = [each.text if is_plain else each.as_sent for each in documents]
        return self.asked(request, partial(_write_ranking, self.top_n, returned))


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
        "images", "`images` are not embedded: this server reads only text.", "This server reads only text."
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
    """The body of `/v1/detokenize`, and of vLLM's `/detokenize`."""

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
