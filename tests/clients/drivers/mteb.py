"""MTEB's wrappers: of OpenAI's client, and of servers that speak its API and that of rerank."""

from typing import Any

from mteb.models import OpenAIAPIEncodeWrapper, OpenAIAPIRerankWrapper
from mteb.models.model_implementations.openai_models import OpenAIModel
from openai import OpenAI

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS

# What a task would say of itself: none of them asks.
TASK: dict[str, Any] = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}

client = OpenAI(base_url=f"{base_url()}/v1", api_key="none is asked")


def as_openai() -> Any:
    model = OpenAIModel(f"owner/{EMBEDDER}", max_tokens=8191, embed_dim=384, client=client)
    return model.encode([{"text": TEXTS}], **TASK)


def as_server(**options: Any) -> Any:
    wrapper = OpenAIAPIEncodeWrapper(base_url(), EMBEDDER, **options)
    return wrapper.encode([{"text": TEXTS}], show_progress_bar=False, **TASK)


def scores() -> Any:
    wrapper = OpenAIAPIRerankWrapper(base_url(), RERANKER)
    pairs = [{"text": [QUERY] * len(DOCUMENTS)}], [{"text": DOCUMENTS}]
    return wrapper.predict(*pairs, show_progress_bar=False, **TASK)


report(
    {
        "embed": as_openai,
        "server": lambda: as_server(use_chat_template=False),
        "scores": scores,
        "error": as_server,
        "retried": lambda: len(client.embeddings.create(model=EMBEDDER, input=TEXTS[:2]).data),
    }
)
