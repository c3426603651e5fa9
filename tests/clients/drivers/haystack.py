"""Haystack's embedders of OpenAI's API, its embedder and its ranker of TEI's."""

from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPITextEmbedder
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

from clients.drivers.report import base_url, report
from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, TEXTS, UNKNOWN

key = Secret.from_token("none is asked")
shared = {"api_key": key, "api_base_url": f"{base_url()}/v1"}
text_embedder = OpenAITextEmbedder(model=EMBEDDER, **shared)
document_embedder = OpenAIDocumentEmbedder(
    model=EMBEDDER, progress_bar=False, raise_on_failure=True, **shared
)
tei_embedder = HuggingFaceAPITextEmbedder(
    api_type="text_embeddings_inference", api_params={"url": base_url()}, token=key, normalize=True
)
ranker = HuggingFaceTEIRanker(url=base_url(), token=key)


def as_documents(texts: list[str]) -> list[Document]:
    return [Document(id=str(number), content=text) for number, text in enumerate(texts)]


def rank() -> list[list[object]]:
    found = ranker.run(query=QUERY, documents=as_documents(DOCUMENTS))["documents"]
    return [[int(document.id), document.score] for document in found]


report(
    {
        "embed": lambda: [
            document.embedding for document in document_embedder.run(as_documents(TEXTS))["documents"]
        ],
        "embed one by one": lambda: [text_embedder.run(text)["embedding"] for text in TEXTS],
        "tei": lambda: [tei_embedder.run(text)["embedding"] for text in TEXTS],
        "usage": lambda: document_embedder.run(as_documents(TEXTS))["meta"]["usage"]["total_tokens"],
        "rerank": rank,
        "error": lambda: OpenAITextEmbedder(model=UNKNOWN, **shared).run(TEXTS[0]),
        "retried": lambda: len(document_embedder.run(as_documents(TEXTS[:2]))["documents"]),
        "rerank retried": lambda: len(
            ranker.run(query=QUERY, documents=as_documents(DOCUMENTS[:2]))["documents"]
        ),
    }
)
