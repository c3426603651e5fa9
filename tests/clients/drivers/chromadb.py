"""chromadb's embedding functions for OpenAI's API, TEI and Ollama, and a collection that calls one."""

from typing import Any

import chromadb
from chromadb.utils.embedding_functions import (
    HuggingFaceEmbeddingServer,
    OllamaEmbeddingFunction,
    OpenAIEmbeddingFunction,
)

from clients.drivers.report import base_url, report
from clients.inputs import EMBEDDER, QUERY, TEXTS, UNKNOWN


def as_openai(model: str = EMBEDDER) -> Any:
    return OpenAIEmbeddingFunction(api_key="none is asked", model_name=model, api_base=f"{base_url()}/v1")


def as_ollama(model: str = EMBEDDER) -> Any:
    return OllamaEmbeddingFunction(url=base_url(), model_name=model)


def as_tei(path: str = "/embed") -> Any:
    return HuggingFaceEmbeddingServer(url=base_url() + path, api_key="none is asked")


def nearest() -> Any:
    collection = chromadb.EphemeralClient().create_collection("texts", embedding_function=as_openai())
    collection.add(ids=[str(number) for number in range(len(TEXTS))], documents=TEXTS)
    return collection.query(query_texts=[QUERY], n_results=1)["documents"][0][0]


report(
    {
        "embed": lambda: as_openai()(TEXTS),
        "tei": lambda: as_tei()(TEXTS),
        "tei at the address": lambda: as_tei("")(TEXTS),
        "ollama": lambda: as_ollama()(TEXTS),
        "nearest": nearest,
        "error": lambda: as_openai(UNKNOWN)(TEXTS),
        "error of ollama": lambda: as_ollama(UNKNOWN)(TEXTS),
        "retried": lambda: len(as_openai()(TEXTS[:2])),
        "two by ollama": lambda: len(as_ollama()(TEXTS[:2])),
        "two by tei": lambda: len(as_tei()(TEXTS[:2])),
    }
)
