"""rerankers, in the dialects of its providers."""

from functools import partial
from typing import Any

from rerankers import Reranker
from rerankers.models.api_rankers import APIRanker

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, QUERY, RERANKER, UNKNOWN

# What each provider's address ends in.
PATHS = {
    "cohere": "/v1/rerank",
    "jina": "/v1/rerank",
    "voyage": "/v1/rerank",
    "pinecone": "/rerank",
    "text-embeddings-inference": "/rerank",
    "mixedbread.ai": "/v1/reranking",
}


def ranker(provider: str, model: str) -> Any:
    options = {"api_key": "none is asked", "url": base_url() + PATHS[provider], "verbose": 0}
    if provider == "mixedbread.ai":  # `Reranker` finds no class under that name
        return APIRanker(model, api_provider=provider, **options)
    return Reranker(model, model_type=provider, **options)


def rank(provider: str, model: str = RERANKER) -> list[list[Any]]:
    places = list(range(len(DOCUMENTS)))
    results = ranker(provider, model).rank(QUERY, DOCUMENTS, doc_ids=places).results
    return [[result.doc_id, result.score] for result in results]


report(
    {
        **{f"rerank {name}": partial(rank, name) for name in PATHS},
        "error": lambda: rank("cohere", UNKNOWN),
        "error of text-embeddings-inference": lambda: rank("text-embeddings-inference", UNKNOWN),
    }
)
