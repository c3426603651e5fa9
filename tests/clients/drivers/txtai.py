"""txtai's index, which asks by LiteLLM and normalises the embeddings once more."""

from typing import Any

import litellm
from txtai import Embeddings

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, QUERY, TEXTS, UNKNOWN

litellm.suppress_debug_info = True


def index(model: str = EMBEDDER) -> Any:
    address = {"api_base": f"{base_url()}/v1", "api_key": "none is asked"}
    return Embeddings(path=f"openai/{model}", method="litellm", content=True, vectors=address)


def nearest() -> Any:
    search = index()
    search.index(TEXTS)
    return search.search(QUERY, 1)[0]["text"]


report(
    {
        "embed": lambda: index().batchtransform(TEXTS),
        "nearest": nearest,
        "error": lambda: index(UNKNOWN).batchtransform(TEXTS),
        "retried": lambda: len(index().batchtransform(TEXTS[:2])),
    }
)
