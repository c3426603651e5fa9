"""redisvl's vectorizers of OpenAI and Cohere, and its rerankers of Cohere and Voyage."""

from typing import Any

from redisvl.utils.rerank import CohereReranker, VoyageAIReranker
from redisvl.utils.vectorize import CohereTextVectorizer, OpenAITextVectorizer

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS

KEY = {"api_key": "none is asked"}


def embed() -> list[list[float]]:
    vectorizer = OpenAITextVectorizer(model=EMBEDDER, api_config={**KEY, "base_url": f"{base_url()}/v1"})
    found: list[list[float]] = vectorizer.embed_many(TEXTS)
    return found


def cohere() -> list[list[float]]:
    vectorizer = CohereTextVectorizer(model=EMBEDDER, api_config=KEY, base_url=base_url())
    found: list[list[float]] = vectorizer.embed_many(TEXTS, input_type="search_document")
    return found


def rank(reranker: Any) -> list[list[object]]:
    documents = [{"content": text, "number": number} for number, text in enumerate(DOCUMENTS)]
    found, scores = reranker.rank(query=QUERY, docs=documents)
    return [[document["number"], score] for document, score in zip(found, scores, strict=True)]


report(
    {
        "embed": embed,
        "cohere": cohere,
        "rerank": lambda: rank(
            CohereReranker(model=RERANKER, rank_by=["content"], limit=3, api_config=KEY, base_url=base_url())
        ),
        "rerank voyage": lambda: rank(
            VoyageAIReranker(model=RERANKER, limit=3, api_config=KEY, base_url=f"{base_url()}/voyage/v1")
        ),
    }
)
