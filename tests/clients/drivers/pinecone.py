"""pinecone's inference: embeddings, the rerank and the lists of models."""

from typing import Any

from pinecone import Pinecone

from clients.drivers.report import base_url, ranked, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS, UNKNOWN

inference = Pinecone(api_key="none is asked", host=base_url()).inference


def embed(model: str = EMBEDDER, **parameters: Any) -> list[list[float]]:
    given = {"input_type": "passage", "truncate": "END", **parameters}
    return [each.values for each in inference.embed(model, inputs=TEXTS, parameters=given)]


def rerank(**options: Any) -> Any:
    return inference.rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS, **options).data


report(
    {
        "embed": embed,
        "usage": lambda: inference.embed(EMBEDDER, inputs=TEXTS).usage.total_tokens,
        "rerank": lambda: ranked(rerank(), "score"),
        "best": lambda: ranked(rerank(top_n=1), "score"),
        "documents": lambda: [each.document["text"] for each in rerank()],
        "models": lambda: inference.list_models().names(),
        "embedders": lambda: inference.list_models(type="embed", vector_type="dense").names(),
        "model": lambda: inference.get_model(model=EMBEDDER).default_dimension,
        "error": lambda: embed(UNKNOWN),
    }
)
