"""The body of `/rerank` of Cohere's, Jina's, vLLM's and Infinity's clients, and what all rerank bodies share.

Bodies have a query and documents, which may be objects. Responses have the results, the best first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from vecmill.requests import Rerank
from vecmill.results import RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.base.settings import RerankDocument, ServerSettings
from vecmill_server.dialects import fields, known_fields, text_fields
from vecmill_server.dialects.dialect import OTHER_RERANK, Asked, Envelope
from vecmill_server.dialects.fields import Field, Json, RequestBody
from vecmill_server.dialects.known_fields import TemplatedBody
from vecmill_server.dialects.response_parts import describe_envelope

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


def result_limit(*names: str) -> Field[int | None]:
    """Return the field for the number of results, under any of `names`; the least number counts."""
    first = names[0]
    parts = [
        fields.count(
            name,
            note="The number of results, the best first; 0 returns all."
            if name == first
            else f"Another name of `{first}`. The least of both counts.",
        )
        for name in names
    ]

    def read(body: RequestBody) -> int | None:
        return min((limit for part in parts if (limit := part.read(body)) is not None), default=None)

    return fields.combined(*parts, read=read, absent=None)


def no_result_limit(name: str) -> Field[None]:
    """Return a number of results that must be absent or 0, because each document gets a score."""
    return fields.fixed(
        name,
        {"type": "integer", "nullable": True, "enum": [0, None]},
        lambda value, field: fields.to_count(value, field) is None,
        f"`{name}` is not for this request: the response has a score for each document, in input order.",
        "The response has a score for each document.",
    )


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
        note="The number of chunks that a document may be split into. Rerank does not split documents: "
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
        **envelope.around("rerank", "rerank", tokens, results=write_results(result, top_n, documents)),
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

    top_n = result_limit("top_n", "top_k")
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
