"""deepinfra's embeddings."""

from typing import Any

from deepinfra import Embeddings

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, TEXTS, UNKNOWN


def answer(model: str = EMBEDDER) -> Any:
    return Embeddings(f"{base_url()}/v1/inference/{model}", "none is asked").generate({"inputs": TEXTS})


report(
    {
        "embed": lambda: answer().embeddings,
        "usage": lambda: answer().input_tokens,
        "error": lambda: answer(UNKNOWN),
    }
)
