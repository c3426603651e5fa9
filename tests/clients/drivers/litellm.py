"""LiteLLM: the same calls in the dialects of its providers."""

from functools import partial
from typing import Any

import litellm

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS, TOO_LONG, UNKNOWN

litellm.suppress_debug_info = True

# What each provider's address ends in, and what else it has to be told.
EMBEDDING: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("/v1", {}),
    "hosted_vllm": ("/v1", {}),
    "infinity": ("", {}),
    "cohere": ("/v2/embed", {"input_type": "search_document"}),
    "jina_ai": ("/v1", {}),
    "voyage": ("/v1", {}),
    "huggingface": ("/embed", {"input_type": "embed"}),
    "dashscope": ("/compatible-mode/v1", {}),
}
RERANK: dict[str, tuple[str, dict[str, Any]]] = {
    "hosted_vllm": ("", {}),
    "infinity": ("", {"return_documents": False}),
    "cohere": ("", {}),
    "jina_ai": ("", {}),
    "voyage": ("/voyage", {}),
    "huggingface": ("", {}),
    "nvidia_nim": ("", {}),
    "deepinfra": ("/v1/openai", {}),
    "dashscope": ("/compatible-api/v1", {}),
    "fireworks_ai": ("", {}),
    "azure_ai": ("", {}),
}


def embed(provider: str, model: str = EMBEDDER, **options: Any) -> list[list[float]]:
    return [entry["embedding"] for entry in answer(provider, model, **options).data]


def answer(provider: str, model: str = EMBEDDER, **options: Any) -> Any:
    path, extra = EMBEDDING[provider]
    given = {
        "input": TEXTS,
        "api_base": base_url() + path,
        "api_key": "none",
        "max_retries": 0,
        **extra,
        **options,
    }
    return litellm.embedding(model=f"{provider}/{model}", **given)


def rerank(provider: str, **options: Any) -> list[dict[str, Any]]:
    path, extra = RERANK[provider]
    base = {"api_base": base_url() + path, "api_key": "none"}
    given = {"query": QUERY, "documents": DOCUMENTS, **base, **extra, **options}
    results: list[dict[str, Any]] = litellm.rerank(model=f"{provider}/{RERANKER}", **given).results
    return results


def routed(provider: str) -> litellm.Router:
    path, extra = EMBEDDING[provider]
    given = {"model": f"{provider}/{EMBEDDER}", "api_base": base_url() + path, "api_key": "none", **extra}
    return litellm.Router([{"model_name": "any", "litellm_params": given}], num_retries=2)


def rank(provider: str, **options: Any) -> list[list[Any]]:
    return [[entry["index"], entry["relevance_score"]] for entry in rerank(provider, **options)]


def documents(provider: str) -> list[str]:
    return [entry["document"]["text"] for entry in rerank(provider, return_documents=True)]


report(
    {
        **{f"embed {name}": partial(embed, name) for name in EMBEDDING},
        **{f"rerank {name}": partial(rank, name) for name in RERANK},
        **{f"documents {name}": partial(documents, name) for name in RERANK},
        "voyage elsewhere": lambda: rank("voyage", api_base=base_url()),
        "usage": lambda: answer("openai").usage.total_tokens,
        "error": lambda: embed("openai", UNKNOWN),
        "error of hosted_vllm": lambda: embed("hosted_vllm", UNKNOWN),
        "too long": lambda: embed("openai", input=[TOO_LONG], extra_body={"truncate": False}),
        "retried": lambda: len(embed("openai", input=TEXTS[:2], max_retries=2)),
        "routed": lambda: len(routed("infinity").embedding("any", input=TEXTS[:2]).data),
        **{f"embed once {name}": partial(embed, name, input=TEXTS[:2]) for name in EMBEDDING},
    }
)
