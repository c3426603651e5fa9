"""lancedb's embedding functions for OpenAI's API and Ollama, and tables that call them.

For OpenAI's API a table takes only OpenAI's names of models, whose dimensions it knows.
"""

from typing import Any

import lancedb
from lancedb.embeddings import get_registry
from lancedb.pydantic import LanceModel

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, QUERY, TEXTS, UNKNOWN

registry = get_registry()
# The function takes a key from a variable alone.
registry.set_var("key", "none is asked")


def as_openai(name: str = EMBEDDER, **options: Any) -> Any:
    given = {"base_url": f"{base_url()}/v1", "api_key": "$var:key", "max_retries": 0, **options}
    return registry.get("openai").create(name=name, **given)


def as_ollama(name: str = EMBEDDER) -> Any:
    return registry.get("ollama").create(name=name, host=base_url())


def table_of(function: Any) -> Any:
    """A table of the texts, which the function embeds."""

    class Entry(LanceModel):  # type: ignore[misc]
        text: str = function.SourceField()
        vector: list[float] = function.VectorField()

    table = lancedb.connect("memory://").create_table("texts", schema=Entry)
    table.add([{"text": text} for text in TEXTS if text])
    return table


def nearest() -> Any:
    return table_of(as_ollama()).search(QUERY).limit(1).to_list()[0]["text"]


def stored() -> Any:
    function = as_openai("text-embedding-3-small", dim=384)
    return table_of(function).to_arrow()["vector"].to_pylist()


report(
    {
        "embed": lambda: as_openai().generate_embeddings(TEXTS),
        "ollama": lambda: as_ollama().generate_embeddings(TEXTS),
        "nearest": nearest,
        "stored": stored,
        "refused": lambda: as_openai(dim=385).generate_embeddings(TEXTS),
        "error": lambda: as_openai(UNKNOWN).generate_embeddings(TEXTS),
        "error of ollama": lambda: as_ollama(UNKNOWN).generate_embeddings(TEXTS),
        "retried": lambda: len(as_openai().generate_embeddings(TEXTS[2:4])),
        "retried by ollama": lambda: len(as_ollama().compute_source_embeddings_with_retry(TEXTS[:2])),
    }
)
