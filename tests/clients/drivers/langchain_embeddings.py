"""LangChain's embedding classes, each with what it takes to reach the server.

Their packages look for tokenizers on the Hugging Face hub, which is not asked here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from langchain_cohere import CohereEmbeddings
from langchain_community.embeddings import InfinityEmbeddings, jina
from langchain_mistralai import MistralAIEmbeddings
from langchain_ollama import OllamaEmbeddings
from langchain_openai import OpenAIEmbeddings
from langchain_voyageai import VoyageAIEmbeddings
from tokenizers import Tokenizer, models

from clients.drivers.report import base_url
from clients.inputs import EMBEDDER, UNKNOWN

KEY = "none is asked"

# For each class, its arguments for a model.
ARGUMENTS: Mapping[Any, Callable[[str], dict[str, Any]]] = {
    CohereEmbeddings: lambda model: {"model": model, "base_url": base_url(), "cohere_api_key": KEY},
    InfinityEmbeddings: lambda model: {"model": model, "infinity_api_url": base_url()},
    jina.JinaEmbeddings: lambda model: {"model_name": model, "jina_api_key": KEY},
    MistralAIEmbeddings: lambda model: {
        "model": model,
        "endpoint": f"{base_url()}/v1/",
        "api_key": KEY,
        "wait_time": 1,
    },
    OllamaEmbeddings: lambda model: {"model": model, "base_url": base_url()},
    OpenAIEmbeddings: lambda model: {
        "model": model,
        "base_url": f"{base_url()}/v1",
        "api_key": KEY,
        "check_embedding_ctx_length": False,
    },
    VoyageAIEmbeddings: lambda model: {
        "model": model,
        "base_url": f"{base_url()}/v1",
        "api_key": KEY,
        "batch_size": 128,
    },
}


def prepare() -> None:
    """Set what the classes have no arguments for: the address for Jina, and a tokenizer for Voyage.

    The tokenizer is where a download from the hub would be. It decides how many texts a request has.
    """
    jina.JINA_API_URL = f"{base_url()}/v1/embeddings"
    constants.HF_HUB_OFFLINE = True
    for model in (EMBEDDER, UNKNOWN):
        repository = Path(constants.HF_HUB_CACHE) / f"models--voyageai--{model}"
        commit = "0" * 40
        for folder in (repository / "refs", repository / "snapshots" / commit):
            folder.mkdir(parents=True, exist_ok=True)
        (repository / "refs/main").write_text(commit)
        file = repository / "snapshots" / commit / "tokenizer.json"
        Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(str(file))
