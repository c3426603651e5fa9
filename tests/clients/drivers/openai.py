"""openai, the same from its first version on."""

from typing import Any

import openai

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, TEXTS, TOO_LONG, UNKNOWN

client = openai.OpenAI(base_url=f"{base_url()}/v1", api_key="none is asked", max_retries=0)
patient = openai.OpenAI(base_url=f"{base_url()}/v1", api_key="none is asked")


def rows(asked: openai.OpenAI = client, **options: Any) -> list[list[float]]:
    given: dict[str, Any] = {"model": EMBEDDER, "input": TEXTS, **options}
    answer = asked.embeddings.create(**given)
    return [entry.embedding for entry in answer.data]


report(
    {
        "embed": rows,
        "embed as floats": lambda: rows(encoding_format="float"),
        "usage": lambda: client.embeddings.create(model=EMBEDDER, input=TEXTS).usage.total_tokens,
        "models": lambda: [model.id for model in client.models.list()],
        "model": lambda: client.models.retrieve(f"owner/{EMBEDDER}").id,
        "cut": lambda: len(rows(input=[TOO_LONG, "a text"])),
        "error": lambda: rows(model=UNKNOWN),
        "retried": lambda: len(rows(patient, input=TEXTS[:2])),
    }
)
