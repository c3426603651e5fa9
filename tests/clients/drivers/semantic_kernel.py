"""semantic-kernel's embedding services for OpenAI's API, and for Ollama with a request for each text."""

import asyncio
from typing import Any

from ollama import AsyncClient
from openai import AsyncOpenAI
from semantic_kernel.connectors.ai.ollama import OllamaTextEmbedding
from semantic_kernel.connectors.ai.open_ai import OpenAIEmbeddingPromptExecutionSettings, OpenAITextEmbedding

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, TEXTS, UNKNOWN


def as_openai(model: str = EMBEDDER, texts: list[str] = TEXTS, **options: Any) -> Any:
    async def embed() -> Any:
        async with AsyncOpenAI(base_url=f"{base_url()}/v1", api_key="none is asked") as client:
            service = OpenAITextEmbedding(ai_model_id=model, async_client=client)
            settings = OpenAIEmbeddingPromptExecutionSettings(**options)
            return await service.generate_embeddings(texts, settings)

    return asyncio.run(embed())


def ollama(model: str = EMBEDDER) -> Any:
    return OllamaTextEmbedding(ai_model_id=model, client=AsyncClient(host=base_url()))


def as_ollama(model: str = EMBEDDER) -> Any:
    async def embed() -> Any:
        return await ollama(model).generate_embeddings(TEXTS)

    return asyncio.run(embed())


def two_by_ollama() -> Any:
    async def embed() -> Any:
        service = ollama()
        return await asyncio.gather(*(service.generate_embeddings([text]) for text in TEXTS[:2]))

    return asyncio.run(embed())


report(
    {
        "embed": as_openai,
        "embed short": lambda: as_openai(dimensions=64),
        "ollama one by one": as_ollama,
        "error": lambda: as_openai(UNKNOWN),
        "error of ollama": lambda: as_ollama(UNKNOWN),
        "retried": lambda: len(as_openai(texts=TEXTS[:2])),
        "two by ollama": two_by_ollama,
    }
)
