"""dspy's embedder, which asks by LiteLLM, and a retriever that calls it."""

from typing import Any

import dspy
import litellm

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, QUERY, TEXTS, UNKNOWN

litellm.suppress_debug_info = True


def embedder(model: str = EMBEDDER) -> Any:
    return dspy.Embedder(
        f"openai/{model}", api_base=f"{base_url()}/v1", api_key="none is asked", caching=False
    )


def nearest() -> Any:
    search = dspy.retrievers.Embeddings(corpus=TEXTS, embedder=embedder(), k=1)
    return search(QUERY).passages[0]


report(
    {
        "embed": lambda: embedder()(TEXTS),
        "embed one by one": lambda: [embedder()(text).tolist() for text in TEXTS],
        "nearest": nearest,
        "error": lambda: embedder(UNKNOWN)(TEXTS),
        "retried": lambda: len(embedder()(TEXTS[:2])),
    }
)
