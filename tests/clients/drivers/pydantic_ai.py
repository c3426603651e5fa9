"""pydantic_ai's embedder, with its providers of OpenAI and of Ollama, which both speak OpenAI's API."""

from typing import Any

from pydantic_ai import Embedder
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, TEXTS, UNKNOWN

address = {"base_url": f"{base_url()}/v1", "api_key": "none is asked"}
openai, ollama = OpenAIProvider(**address), OllamaProvider(**address)


def answer(model: str = EMBEDDER, provider: Any = openai, texts: list[str] = TEXTS, **settings: Any) -> Any:
    embedder = Embedder(OpenAIEmbeddingModel(model, provider=provider))
    return embedder.embed_documents_sync(texts, settings=settings)


report(
    {
        "embed": lambda: answer().embeddings,
        "embed short": lambda: answer(dimensions=64).embeddings,
        "ollama": lambda: answer(provider=ollama).embeddings,
        "usage": lambda: answer().usage.input_tokens,
        "error": lambda: answer(UNKNOWN),
        "retried": lambda: len(answer(texts=TEXTS[:2]).embeddings),
    }
)
