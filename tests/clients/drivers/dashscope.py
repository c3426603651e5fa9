"""dashscope's embeddings and rerank, of Alibaba's Model Studio."""

from http import HTTPStatus
from typing import Any

import dashscope

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS, UNKNOWN

dashscope.base_http_api_url = f"{base_url()}/api/v1"
dashscope.api_key = "none is asked"


def output(answer: Any) -> Any:
    """What the client returns, which raises nothing."""
    if answer.status_code != HTTPStatus.OK:
        raise ValueError(answer.message)
    return answer.output


def embed(model: str = EMBEDDER, **options: Any) -> Any:
    answer = dashscope.TextEmbedding.call(model=model, input=TEXTS, text_type="document", **options)
    return [each["embedding"] for each in output(answer)["embeddings"]]


def rerank(**options: Any) -> list[list[Any]]:
    answer = dashscope.TextReRank.call(model=RERANKER, query=QUERY, documents=DOCUMENTS, **options)
    return [[each["index"], each["relevance_score"]] for each in output(answer)["results"]]


report(
    {
        "embed": embed,
        "embed short": lambda: embed(dimension=64),
        "usage": lambda: dashscope.TextEmbedding.call(model=EMBEDDER, input=TEXTS).usage["total_tokens"],
        "rerank": rerank,
        "best": lambda: rerank(top_n=1),
        "error": lambda: embed(UNKNOWN),
    }
)
