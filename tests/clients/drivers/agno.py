"""agno's embedders for OpenAI's API, Jina and Ollama."""

import asyncio
from typing import Any

from agno.knowledge.embedder.jina import JinaEmbedder
from agno.knowledge.embedder.ollama import OllamaEmbedder
from agno.knowledge.embedder.openai_like import OpenAILikeEmbedder

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, TEXTS, UNKNOWN


def as_openai(model: str = EMBEDDER, dimensions: int = 384) -> Any:
    return OpenAILikeEmbedder(
        id=model, dimensions=dimensions, base_url=f"{base_url()}/v1", api_key="none is asked"
    )


def as_jina(model: str = EMBEDDER) -> Any:
    url = f"{base_url()}/v1/embeddings"
    return JinaEmbedder(id=model, dimensions=384, base_url=url, api_key="none is asked")


def as_ollama(model: str = EMBEDDER) -> Any:
    return OllamaEmbedder(id=model, dimensions=384, host=base_url())


def one_by_one(embedder: Any) -> list[list[float]]:
    return [embedder.get_embedding(text) for text in TEXTS]


def together(embedder: Any, texts: list[str] = TEXTS) -> Any:
    return asyncio.run(embedder.async_get_embeddings_batch_and_usage(texts))[0]


def at_once(embedder: Any) -> Any:
    async def embed() -> Any:
        return await asyncio.gather(*map(embedder.async_get_embedding, TEXTS[:2]))

    return asyncio.run(embed())


report(
    {
        "embed": lambda: together(as_openai()),
        "embed one by one": lambda: one_by_one(as_openai()),
        "embed short": lambda: together(as_openai(dimensions=64)),
        "jina": lambda: together(as_jina()),
        "jina one by one": lambda: one_by_one(as_jina()),
        "ollama one by one": lambda: one_by_one(as_ollama()),
        "usage": lambda: sum(as_openai().get_embedding_and_usage(text)[1]["total_tokens"] for text in TEXTS),
        "error": lambda: as_openai(UNKNOWN).get_embedding(TEXTS[0]),
        "error of jina": lambda: as_jina(UNKNOWN).get_embedding(TEXTS[0]),
        "error of ollama": lambda: as_ollama(UNKNOWN).get_embedding(TEXTS[0]),
        "its own dimensions": lambda: as_openai(dimensions=1536).get_embedding(TEXTS[0]),
        "retried": lambda: len(together(as_openai(), TEXTS[:2])),
        "two by jina": lambda: at_once(as_jina()),
        "two by ollama": lambda: at_once(as_ollama()),
    }
)
