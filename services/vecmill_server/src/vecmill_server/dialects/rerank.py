"""`/rerank`: four shapes on one path, told apart by their keys.

`texts` is TEI's; `truncation` or `top_k` Voyage's, whose client sends them even as null; `property` that of
Weaviate's reranker-transformers; anything else the one that Cohere's, Jina's, vLLM's and Infinity's clients
share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.reading import Reading
from vecmill.types import JsonValue, RerankResult
from vecmill_server.calls import RerankCall
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.fields import best_first, read_truncation, usage
from vecmill_server.dialects.tei import TEI_RERANK
from vecmill_server.documents import (
    Envelope,
    read_count,
    read_flag,
    read_items,
    read_raw_scores,
    read_required,
    read_string,
)
from vecmill_server.problems import plain_response


def choose_rerank(document: Document) -> Dialect:
    """The dialect that a body is written in."""
    if document.get("texts") is not None:
        return TEI_RERANK
    if "truncation" in document or "top_k" in document:
        return VOYAGE_RERANK
    if "property" in document:
        return WEAVIATE_RERANK
    return RERANK


def read_rerank(document: Document, options: DialectOptions) -> Asked:
    """As Cohere's, Jina's, vLLM's and Infinity's clients ask."""
    documents = _read_documents(document)
    call = _read_call(document, documents)
    echoed = None
    if read_flag(document, "return_documents", default=False):
        echoed = [one.text if options.plain_documents else one.as_sent for one in documents]
    return Asked(call, partial(_write_results, read_count(document, "top_n"), echoed))


def read_voyage_rerank(document: Document, options: DialectOptions) -> Asked:
    """As Voyage's clients ask."""
    call = _read_call(document, _read_documents(document))
    echoed = call.documents if read_flag(document, "return_documents", default=False) else None
    return Asked(call, partial(_write_voyage, read_count(document, "top_k"), echoed))


def read_weaviate_rerank(document: Document, options: DialectOptions) -> Asked:
    """As Weaviate's reranker-transformers asks."""
    call = _read_call(document, _read_documents(document))
    return Asked(call, partial(_write_weaviate, call))


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """What is read of a document, and what stands for it in an answer: an object that has a `text`."""

    text: str
    as_sent: JsonValue


def _read_call(document: Document, documents: Sequence[RankedDocument]) -> RerankCall:
    return RerankCall(
        model=read_string(document, "model"),
        queries=(_read_query(document),),
        documents=tuple(one.text for one in documents),
        raw_scores=read_raw_scores(document),
        reading=Reading(
            prompt_name=read_string(document, "prompt_name"),
            prompt=read_string(document, "prompt"),
            truncation=read_truncation(document),
            query_tokens=read_count(document, "max_tokens_per_query"),
            document_tokens=read_count(document, "max_tokens_per_doc"),
        ),
        instruction=read_string(document, "instruction"),
    )


def _write_results(
    top_n: int | None, echoed: Sequence[JsonValue] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    tokens = result.token_count
    return {
        "id": f"rerank-{envelope.request_id}",
        "object": "rerank",
        "created": envelope.created,
        "model": envelope.model,
        "results": _entries(result, top_n, echoed),
        "usage": usage(tokens),
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1, "input_tokens": tokens},
            "tokens": {"input_tokens": tokens, "output_tokens": 0},
        },
    }


def _write_voyage(
    top_k: int | None, echoed: Sequence[JsonValue] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    return {
        "object": "list",
        "data": _entries(result, top_k, echoed),
        "model": envelope.model,
        "usage": {"total_tokens": result.token_count},
    }


def _write_weaviate(call: RerankCall, result: RerankResult, _envelope: Envelope) -> JsonValue:
    return {
        "scores": [
            {"document": document, "score": score}
            for document, score in zip(call.documents, result.scores, strict=True)
        ]
    }


def _entries(
    result: RerankResult, limit: int | None, echoed: Sequence[JsonValue] | None
) -> list[dict[str, Any]]:
    """The best documents, with what is `echoed` of them."""
    entries: list[dict[str, Any]] = [
        {"index": index, "relevance_score": result.scores[index]} for index in best_first(result, limit)
    ]
    if echoed is not None:
        for entry in entries:
            entry["document"] = echoed[entry["index"]]
    return entries


def _read_query(document: Document) -> str:
    """A string, or an object as documents are."""
    query = document.get("query")
    if isinstance(query, dict):
        return _read_document(query, (), "query").text
    return read_required(document, "query")


def _read_documents(document: Document) -> list[RankedDocument]:
    items = read_items(document, "documents", "a list of texts")
    names = _read_rank_fields(document)
    return [_read_document(item, names, f"documents[{index}]") for index, item in enumerate(items)]


def _read_rank_fields(document: Document) -> tuple[str, ...]:
    """Cohere's `rank_fields`: which fields of documents that are objects are read, in this order."""
    value = document.get("rank_fields")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidRequest("`rank_fields` must be a list of names of fields.", field="rank_fields")
    return tuple(value)


def _read_document(item: JsonValue, names: tuple[str, ...], field: str) -> RankedDocument:
    if isinstance(item, str):
        return RankedDocument(item, {"text": item})
    if isinstance(item, dict):
        text = _text_of_fields(item, names) if names else _text_of(item)
        if text is not None:
            return RankedDocument(text, item if isinstance(item.get("text"), str) else {**item, "text": text})
    wanted = " that has one of `rank_fields`" if names else ' like {"text": a string}'
    raise InvalidRequest(f"`{field}` must be a string or an object{wanted}.", field=field)


def _text_of(item: Document) -> str | None:
    text = item.get("text")
    if text is None:
        return _text_of_parts(item.get("content"))
    return text if isinstance(text, str) else None


def _text_of_fields(item: Document, names: tuple[str, ...]) -> str | None:
    """The values of these fields, a line each; `None` where none of them is a string."""
    values = [value for value in map(item.get, names) if isinstance(value, str)]
    return "\n".join(values) if values else None


def _text_of_parts(content: JsonValue) -> str | None:
    """The text of `[{"type": "text", "text": ...}]`, vLLM's way to write a document; nothing else is text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, dict) else None for part in content]
    whole = [text for text in texts if isinstance(text, str)]
    return "\n".join(whole) if len(whole) == len(texts) else None


RERANK = Dialect(read_rerank)
VOYAGE_RERANK = Dialect(read_voyage_rerank)
WEAVIATE_RERANK = Dialect(read_weaviate_rerank, plain_response)
