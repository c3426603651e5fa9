"""voyageai, which retries when it is told to."""

from functools import partial
from typing import Any

import voyageai

from clients.drivers.report import base_url, ranked, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS, TOO_LONG, UNKNOWN

client = voyageai.Client(api_key="none is asked", base_url=f"{base_url()}/v1")
patient = voyageai.Client(api_key="none is asked", base_url=f"{base_url()}/v1", max_retries=5)
own_path = voyageai.Client(api_key="none is asked", base_url=f"{base_url()}/voyage/v1")


def rows(asked: voyageai.Client = client, **options: Any) -> Any:
    return asked.embed(**{"texts": TEXTS, "model": EMBEDDER, **options}).embeddings


report(
    {
        "embed": rows,
        "embed documents": lambda: rows(input_type="document"),
        **{
            f"embed as {kind}": partial(rows, output_dtype=kind)
            for kind in ("int8", "uint8", "binary", "ubinary")
        },
        "embed short": lambda: rows(output_dimension=64),
        "usage": lambda: client.embed(TEXTS, EMBEDDER).total_tokens,
        "rerank": lambda: ranked(client.rerank(QUERY, DOCUMENTS, RERANKER).results),
        "rerank at its own path": lambda: ranked(own_path.rerank(QUERY, DOCUMENTS, RERANKER).results),
        "best": lambda: ranked(client.rerank(QUERY, DOCUMENTS, RERANKER, top_k=1).results),
        "cut": lambda: len(rows(texts=[TOO_LONG, "a text"])),
        "cut in a rerank": lambda: len(client.rerank(QUERY, [TOO_LONG, "a text"], RERANKER).results),
        "error": lambda: rows(texts=[TOO_LONG], truncation=False),
        "unknown model": lambda: rows(model=UNKNOWN),
        "retried": lambda: len(rows(patient, texts=TEXTS[:2])),
    }
)
