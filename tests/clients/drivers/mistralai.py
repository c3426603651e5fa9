"""mistralai, which retries when it is told to."""

from typing import Any

from mistralai.client import Mistral
from mistralai.client.utils import BackoffStrategy, RetryConfig

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, TEXTS, TOO_LONG, UNKNOWN

client = Mistral(api_key="none is asked", server_url=base_url())
retries = RetryConfig("backoff", BackoffStrategy(500, 5_000, 1.5, 60_000), retry_connection_errors=False)


def rows(**options: Any) -> list[Any]:
    answer = client.embeddings.create(**{"model": EMBEDDER, "inputs": TEXTS, **options})
    return [entry.embedding for entry in answer.data]


report(
    {
        "embed": rows,
        "embed as int8": lambda: rows(output_dtype="int8"),
        "embed short": lambda: rows(output_dimension=64),
        "usage": lambda: client.embeddings.create(model=EMBEDDER, inputs=TEXTS).usage.total_tokens,
        "cut": lambda: len(rows(inputs=[TOO_LONG, "a text"])),
        "error": lambda: rows(model=UNKNOWN),
        "retried": lambda: len(rows(inputs=TEXTS[:2], retries=retries)),
    }
)
