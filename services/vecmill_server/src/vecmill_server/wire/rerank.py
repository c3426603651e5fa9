"""The body of `/rerank` and its answer, as Cohere's, Jina's, vLLM's and Infinity's clients share it."""

from dataclasses import dataclass
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.types import JsonValue, RerankResult
from vecmill_server.wire.documents import (
    Envelope,
    decode_object,
    encode_json,
    read_count,
    read_flag,
    read_raw_scores,
    read_string,
)


@dataclass(frozen=True, slots=True)
class RerankCall:
    """The body of a request to rerank. `top_n` is `None` for all documents."""

    model: str | None
    query: str
    documents: tuple[str, ...]
    top_n: int | None
    return_documents: bool
    raw_scores: bool = False
    truncate: bool = True
    prompt_name: str | None = None
    instruction: str | None = None


def decode_rerank(body: bytes) -> RerankCall:
    """Read the body of a request to rerank. Raises `InvalidJson` or `InvalidRequest`."""
    document = decode_object(body)
    query = document.get("query")
    if not isinstance(query, str):
        raise InvalidRequest("`query` is required, and must be a string.", field="query")
    return RerankCall(
        model=read_string(document, "model"),
        query=query,
        documents=_documents(document.get("documents")),
        top_n=read_count(document, "top_n"),
        return_documents=read_flag(document, "return_documents", default=False),
        raw_scores=read_raw_scores(document),
        truncate=read_flag(document, "truncate", default=True),
        prompt_name=read_string(document, "prompt_name"),
        instruction=read_string(document, "instruction"),
    )


def encode_rerank(result: RerankResult, call: RerankCall, envelope: Envelope) -> bytes:
    """The answer to a request to rerank: best first, ties in input order."""
    best = (-result.scores).argsort(kind="stable")[: call.top_n].tolist()
    ranked: list[dict[str, Any]] = [
        {"index": index, "relevance_score": result.scores[index]} for index in best
    ]
    if call.return_documents:
        for entry in ranked:
            entry["document"] = {"text": call.documents[entry["index"]]}
    tokens = result.token_count
    return encode_json(
        {
            "id": f"rerank-{envelope.request_id}",
            "object": "rerank",
            "created": envelope.created,
            "model": envelope.model,
            "results": ranked,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "meta": {
                "api_version": {"version": "2"},
                "billed_units": {"search_units": 1, "input_tokens": tokens},
                "tokens": {"input_tokens": tokens, "output_tokens": 0},
            },
        }
    )


def _documents(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise InvalidRequest("`documents` is required: a list of at least one text.", field="documents")
    return tuple(_document(item, index) for index, item in enumerate(value))


def _document(item: JsonValue, index: int) -> str:
    text = item.get("text") if isinstance(item, dict) else item
    if isinstance(text, str):
        return text
    field = f"documents[{index}]"
    raise InvalidRequest(f'`{field}` must be a string or {{"text": a string}}.', field=field)
