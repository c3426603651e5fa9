"""LangChain's embeddings of OpenAI and of Infinity, and its rerank of Infinity."""

from typing import Any

from infinity_client import Client
from langchain_community.document_compressors import InfinityRerank
from langchain_community.embeddings import InfinityEmbeddings
from langchain_openai import OpenAIEmbeddings

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS, UNKNOWN


def as_openai(**options: Any) -> OpenAIEmbeddings:
    given = {"model": EMBEDDER, "base_url": f"{base_url()}/v1", "api_key": "none is asked", **options}
    return OpenAIEmbeddings(**given)


stock = as_openai()
plain = as_openai(check_embedding_ctx_length=False)
infinity = InfinityEmbeddings(model=EMBEDDER, infinity_api_url=base_url())
reranker = InfinityRerank(client=Client(base_url=base_url()), model=RERANKER)


def rank() -> list[list[Any]]:
    found = reranker.rerank(DOCUMENTS, QUERY, top_n=None)
    return [[entry["index"], entry["relevance_score"]] for entry in found]


report(
    {
        "embed stock": lambda: stock.embed_documents(TEXTS),
        "embed": lambda: plain.embed_documents(TEXTS),
        "embed queries": lambda: [plain.embed_query(text) for text in TEXTS],
        "infinity": lambda: infinity.embed_documents(TEXTS),
        "rerank": rank,
        "error": lambda: as_openai(model=UNKNOWN, check_embedding_ctx_length=False).embed_documents(TEXTS),
        "infinity error": lambda: InfinityEmbeddings(
            model=UNKNOWN, infinity_api_url=base_url()
        ).embed_documents(TEXTS),
        "retried": lambda: len(plain.embed_documents(TEXTS[:2])),
    }
)
