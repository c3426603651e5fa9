"""`/rerank`: four shapes on one path, told apart by their keys.

`texts` is TEI's; `truncation` or `top_k` Voyage's; `property` that of Weaviate's reranker-transformers;
anything else the one that Cohere's, Jina's, vLLM's and Infinity's clients share.
"""

from functools import partial
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.reading import Reading
from vecmill.types import JsonValue, RerankResult
from vecmill_server.calls import RerankCall
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.fields import best_first, read_truncation, usage
from vecmill_server.dialects.tei import TEI_RERANK
from vecmill_server.documents import Envelope, read_count, read_flag, read_raw_scores, read_string


def choose_rerank(document: Document) -> Dialect:
    """The dialect that a body is written in."""
    if "texts" in document:
        return TEI_RERANK
    if "truncation" in document or "top_k" in document:
        return VOYAGE_RERANK
    if "property" in document:
        return WEAVIATE_RERANK
    return RERANK


def read_rerank(document: Document, options: DialectOptions) -> Asked:
    """As Cohere's, Jina's, vLLM's and Infinity's clients ask."""
    top_n = read_count(document, "top_n")
    with_documents = read_flag(document, "return_documents", default=False)
    call = _read_call(document)
    write = partial(_write_results, call, top_n, with_documents, options.plain_documents)
    return Asked(call, write)


def read_voyage_rerank(document: Document, options: DialectOptions) -> Asked:
    """As Voyage's clients ask."""
    top_k = read_count(document, "top_k")
    with_documents = read_flag(document, "return_documents", default=False)
    call = _read_call(document)
    return Asked(call, partial(_write_voyage, call, top_k, with_documents))


def read_weaviate_rerank(document: Document, options: DialectOptions) -> Asked:
    """As Weaviate's reranker-transformers asks."""
    call = _read_call(document)
    return Asked(call, partial(_write_weaviate, call))


def _read_call(document: Document) -> RerankCall:
    query = document.get("query")
    if not isinstance(query, str):
        raise InvalidRequest("`query` is required, and must be a string.", field="query")
    return RerankCall(
        model=read_string(document, "model"),
        queries=(query,),
        documents=_read_documents(document.get("documents")),
        raw_scores=read_raw_scores(document),
        reading=Reading(
            prompt_name=read_string(document, "prompt_name"),
            prompt=read_string(document, "prompt"),
            truncation=read_truncation(document),
        ),
        instruction=read_string(document, "instruction"),
    )


def _write_results(
    call: RerankCall,
    top_n: int | None,
    with_documents: bool,
    plain: bool,
    result: RerankResult,
    envelope: Envelope,
) -> JsonValue:
    entries = _entries(call, result, top_n)
    if with_documents:
        for entry in entries:
            text = call.documents[entry["index"]]
            entry["document"] = text if plain else {"text": text}
    tokens = result.token_count
    return {
        "id": f"rerank-{envelope.request_id}",
        "object": "rerank",
        "created": envelope.created,
        "model": envelope.model,
        "results": entries,
        "usage": usage(tokens),
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1, "input_tokens": tokens},
            "tokens": {"input_tokens": tokens, "output_tokens": 0},
        },
    }


def _write_voyage(
    call: RerankCall, top_k: int | None, with_documents: bool, result: RerankResult, envelope: Envelope
) -> JsonValue:
    entries = _entries(call, result, top_k)
    if with_documents:
        for entry in entries:
            entry["document"] = call.documents[entry["index"]]
    return {
        "object": "list",
        "data": entries,
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


def _entries(call: RerankCall, result: RerankResult, limit: int | None) -> list[dict[str, Any]]:
    return [{"index": index, "relevance_score": result.scores[index]} for index in best_first(result, limit)]


def _read_documents(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise InvalidRequest("`documents` is required: a list of at least one text.", field="documents")
    return tuple(_read_document(item, index) for index, item in enumerate(value))


def _read_document(item: JsonValue, index: int) -> str:
    text = item.get("text", _text_of_parts(item.get("content"))) if isinstance(item, dict) else item
    if isinstance(text, str):
        return text
    field = f"documents[{index}]"
    raise InvalidRequest(f'`{field}` must be a string or {{"text": a string}}.', field=field)


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
WEAVIATE_RERANK = Dialect(read_weaviate_rerank)
