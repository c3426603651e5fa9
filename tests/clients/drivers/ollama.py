"""ollama, which never retries."""

import ollama

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, TEXTS, TOO_LONG, UNKNOWN

client = ollama.Client(host=base_url())


def shown(model: ollama.ShowResponse) -> list[object]:
    about = model.modelinfo
    family = about["general.architecture"]
    sizes = [about[f"{family}.{name}"] for name in ("context_length", "embedding_length")]
    return [model.capabilities, model.details.family, *sizes]


report(
    {
        "embed": lambda: client.embed(model=EMBEDDER, input=TEXTS).embeddings,
        "embed short": lambda: client.embed(model=EMBEDDER, input=TEXTS, dimensions=64).embeddings,
        "embed one by one": lambda: [client.embeddings(EMBEDDER, text).embedding for text in TEXTS],
        "latest": lambda: client.embed(model=f"{EMBEDDER}:latest", input=TEXTS).embeddings,
        "usage": lambda: client.embed(model=EMBEDDER, input=TEXTS).prompt_eval_count,
        "models": lambda: [model.model for model in client.list().models],
        "show": lambda: shown(client.show(EMBEDDER)),
        "show unknown": lambda: client.show(UNKNOWN),
        "running": lambda: [model.model for model in client.ps().models],
        "cut": lambda: len(client.embed(model=EMBEDDER, input=[TOO_LONG, "a text"]).embeddings),
        "error": lambda: client.embed(model=UNKNOWN, input="a text"),
        "too long": lambda: client.embed(model=EMBEDDER, input=TOO_LONG, truncate=False),
    }
)
