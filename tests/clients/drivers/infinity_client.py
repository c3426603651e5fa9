"""infinity_client, which leaves fields at values that mean nothing, and raises if it is told to."""

from typing import Any

from infinity_client import Client
from infinity_client.api.default import classify, embeddings, health, models, rerank
from infinity_client.models import ClassifyInput, OpenAIEmbeddingInputText, RerankInput

from clients.drivers.report import base_url, ranked, report
from clients.inputs import CLASSIFIER, DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS, UNKNOWN

client = Client(base_url=base_url())
strict = Client(base_url=base_url(), raise_on_unexpected_status=True)


def embed(asked: Client = client, **options: Any) -> Any:
    return embeddings.sync(client=asked, body=OpenAIEmbeddingInputText(input_=TEXTS, **options))


def rows(asked: Client = client, **options: Any) -> list[list[float]]:
    return [entry.embedding for entry in embed(asked, **options).data]


def labels() -> list[list[list[Any]]]:
    answer = classify.sync(client=client, body=ClassifyInput(input_=TEXTS, model=CLASSIFIER))
    return [[[entry.label, entry.score] for entry in entries] for entries in answer.data]


report(
    {
        "embed": rows,
        "embed by name": lambda: rows(model=EMBEDDER),
        "usage": lambda: embed().usage.total_tokens,
        "rerank": lambda: ranked(
            rerank.sync(
                client=client, body=RerankInput(query=QUERY, documents=DOCUMENTS, model=RERANKER)
            ).results
        ),
        "classify": labels,
        "models": lambda: [
            [model.id, model.stats["queue_absolute"]] for model in models.sync(client=client).data
        ],
        "health": lambda: health.sync(client=client)["unix"] > 0,
        "error": lambda: rows(strict, model=UNKNOWN),
    }
)
