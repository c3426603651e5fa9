"""LangChain's packages of Cohere, Jina, Mistral, Ollama and Voyage, and its tests of embedding classes."""

import os
from functools import partial
from typing import Any

import pytest
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_community.document_compressors import jina_rerank
from langchain_community.embeddings.jina import JinaEmbeddings
from langchain_core.documents import Document
from langchain_mistralai import MistralAIEmbeddings
from langchain_ollama import OllamaEmbeddings
from langchain_voyageai import VoyageAIEmbeddings, VoyageAIRerank

from clients.drivers.langchain_embeddings import ARGUMENTS, KEY, prepare
from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS, UNKNOWN

CLASSES: dict[str, Any] = {
    "cohere": CohereEmbeddings,
    "jina": JinaEmbeddings,
    "mistral": MistralAIEmbeddings,
    "ollama": OllamaEmbeddings,
    "voyage": VoyageAIEmbeddings,
}
RERANKERS: dict[str, Any] = {
    "cohere": lambda: CohereRerank(model=RERANKER, base_url=base_url(), cohere_api_key=KEY),
    "jina": lambda: jina_rerank.JinaRerank(model=RERANKER, jina_api_key=KEY),
    "voyage": lambda: VoyageAIRerank(model=RERANKER, base_url=f"{base_url()}/v1", api_key=KEY),
}


class Outcomes:
    """A plugin of pytest that keeps how each test ended."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the outcome of the call, or of a phase before or after it that did not pass."""
        if report.when == "call" or not report.passed:
            self.found[report.nodeid.partition("::")[2]] = report.outcome


def made(name: str, model: str = EMBEDDER) -> Any:
    kind = CLASSES[name]
    return kind(**ARGUMENTS[kind](model))


def rows(name: str, model: str = EMBEDDER) -> Any:
    return made(name, model).embed_documents(TEXTS)


def single_rows(name: str) -> Any:
    embedder = made(name)
    return [embedder.embed_query(text) for text in TEXTS]


def count_of_two(name: str) -> int:
    return len(made(name).embed_documents(TEXTS[:2]))


def ranked(name: str) -> list[list[Any]]:
    documents = [Document(page_content=text, metadata={"place": n}) for n, text in enumerate(DOCUMENTS)]
    found = RERANKERS[name]().compress_documents(documents, QUERY)
    return [[entry.metadata["place"], entry.metadata["relevance_score"]] for entry in found]


def run_standard_tests() -> dict[str, str]:
    outcomes = Outcomes()
    plain = ["-c", os.devnull, "--rootdir", os.getcwd(), "--noconftest", "-p", "no:cacheprovider"]
    modes = ["--import-mode=importlib", "-o", "asyncio_mode=auto"]
    pytest.main([*plain, *modes, "--pyargs", "clients.drivers.langchain_suite"], plugins=[outcomes])
    return outcomes.found


prepare()
jina_rerank.JINA_API_URL = f"{base_url()}/v1/rerank"
report(
    {
        **{f"embed {name}": partial(rows, name) for name in CLASSES},
        **{f"embed queries {name}": partial(single_rows, name) for name in CLASSES},
        **{f"rerank {name}": partial(ranked, name) for name in RERANKERS},
        **{f"error {name}": partial(rows, name, UNKNOWN) for name in CLASSES},
        **{f"two {name}": partial(count_of_two, name) for name in CLASSES},
        "standard tests": run_standard_tests,
    }
)
