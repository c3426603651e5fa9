"""LightRAG's embeddings of OpenAI, Jina and Ollama, and its rerank of Cohere, Jina and Alibaba."""

import asyncio
from collections.abc import Callable
from typing import Any

from lightrag.llm.jina import jina_embed
from lightrag.llm.ollama import ollama_embed
from lightrag.llm.openai import openai_embed
from lightrag.rerank import ali_rerank, cohere_rerank, jina_rerank

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS

URL = base_url()
KEY = "none is asked"


def wait(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: asyncio.run(make())


def rank(rerank: Any, path: str) -> Callable[[], list[list[object]]]:
    def ask() -> list[list[object]]:
        work = rerank(QUERY, DOCUMENTS, api_key=KEY, model=RERANKER, base_url=URL + path)
        return [[entry["index"], entry["relevance_score"]] for entry in asyncio.run(work)]

    return ask


report(
    {
        "embed": wait(lambda: openai_embed.func(TEXTS, model=EMBEDDER, base_url=f"{URL}/v1", api_key=KEY)),
        "jina": wait(
            lambda: jina_embed.func(
                TEXTS, model=EMBEDDER, base_url=f"{URL}/v1/embeddings", api_key=KEY, embedding_dim=384
            )
        ),
        "ollama": wait(lambda: ollama_embed.func(TEXTS, embed_model=EMBEDDER, host=URL)),
        "rerank cohere": rank(cohere_rerank, "/v2/rerank"),
        "rerank jina": rank(jina_rerank, "/v1/rerank"),
        "rerank alibaba": rank(ali_rerank, "/api/v1/services/rerank/text-rerank/text-rerank"),
    }
)
