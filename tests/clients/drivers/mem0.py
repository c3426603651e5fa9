"""mem0's embedders for OpenAI's API, LM Studio and Ollama, and a memory that calls one."""

from typing import Any

from mem0 import Memory
from mem0.utils.factory import EmbedderFactory

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, QUERY, TEXTS, UNKNOWN

# The setting of each provider's address, and what the address ends in.
ADDRESSES = {
    "openai": ("openai_base_url", "/v1"),
    "lmstudio": ("lmstudio_base_url", "/v1"),
    "ollama": ("ollama_base_url", ""),
}


def settings(provider: str, model: str = EMBEDDER, **options: Any) -> dict[str, Any]:
    key, path = ADDRESSES[provider]
    return {"model": model, key: base_url() + path, "api_key": "none is asked", **options}


def embed(provider: str, texts: list[str] = TEXTS, **options: Any) -> Any:
    return EmbedderFactory.create(provider, settings(provider, **options), None).embed_batch(texts)


def embed_one_by_one(provider: str) -> Any:
    embedder = EmbedderFactory.create(provider, settings(provider), None)
    return [embedder.embed(text) for text in TEXTS]


def nearest() -> Any:
    size = {"embedding_model_dims": 384}
    memory = Memory.from_config(
        {
            "embedder": {"provider": "openai", "config": settings("openai", embedding_dims=384)},
            "llm": {"provider": "openai", "config": {"api_key": "none is asked"}},
            "vector_store": {"provider": "qdrant", "config": {"path": "memories", **size}},
        }
    )
    for text in filter(None, TEXTS):
        memory.add(text, user_id="somebody", infer=False)
    found = memory.search(QUERY, filters={"user_id": "somebody"}, top_k=1, threshold=0.0)
    return found["results"][0]["memory"]


report(
    {
        "embed": lambda: embed("openai", embedding_dims=384),
        "embed one by one": lambda: embed_one_by_one("openai"),
        "embed short": lambda: embed("openai", embedding_dims=64),
        "lmstudio": lambda: embed("lmstudio"),
        "ollama": lambda: embed("ollama"),
        "ollama pulled": lambda: embed("ollama", model=f"owner/{EMBEDDER}"),
        "ollama one by one": lambda: embed_one_by_one("ollama"),
        "nearest": nearest,
        "error": lambda: embed("openai", model=UNKNOWN),
        "error of ollama": lambda: embed("ollama", model=UNKNOWN),
        "retried": lambda: len(embed("openai", TEXTS[:2])),
        "two by ollama": lambda: len(embed("ollama", TEXTS[:2])),
    }
)
