"""cohere, both of its clients."""

import cohere

from clients.drivers.report import base_url, ranked, report
from clients.inputs import DOCUMENTS, EMBEDDER, HARD_TEXT, QUERY, RERANKER, TEXTS, TOO_LONG, UNKNOWN

KINDS = ["float", "int8", "uint8", "binary", "ubinary", "base64"]

v1 = cohere.Client(api_key="none is asked", base_url=base_url())
v2 = cohere.ClientV2(api_key="none is asked", base_url=base_url())
mistaken = cohere.ClientV2(api_key="none is asked", base_url=f"{base_url()}/v1")
given = {"model": EMBEDDER, "texts": TEXTS, "input_type": "search_document"}
asked = {"model": RERANKER, "query": QUERY, "documents": DOCUMENTS}


def kinds_of(embeddings: object) -> dict[str, object]:
    return {kind: getattr(embeddings, "float_" if kind == "float" else kind) for kind in KINDS}


report(
    {
        "embed v1": lambda: v1.embed(**given).embeddings,
        "embed v1 in kinds": lambda: kinds_of(v1.embed(**given, embedding_types=KINDS).embeddings),
        "embed v2": lambda: v2.embed(**given, embedding_types=["float"]).embeddings.float_,
        "embed v2 in kinds": lambda: kinds_of(v2.embed(**given, embedding_types=KINDS).embeddings),
        "usage v1": lambda: v1.embed(**given).meta.billed_units.input_tokens,
        "usage v2": lambda: v2.embed(**given, embedding_types=["float"]).meta.billed_units.input_tokens,
        "rerank v1": lambda: ranked(v1.rerank(**asked).results),
        "rerank v1 with documents": lambda: [
            result.document.text for result in v1.rerank(**asked, return_documents=True).results
        ],
        "rerank v2": lambda: ranked(v2.rerank(**asked).results),
        "rerank v2 at /v1": lambda: ranked(mistaken.rerank(**asked).results),
        "best of v2": lambda: ranked(v2.rerank(**asked, top_n=1).results),
        "tokenize": lambda: v1.tokenize(text=TEXTS[0], model=EMBEDDER, offline=False).token_strings,
        "tokenize and join": lambda: "".join(
            v1.tokenize(text=HARD_TEXT, model=EMBEDDER, offline=False).token_strings
        ),
        "models": lambda: [
            [model.name, model.endpoints, model.context_length] for model in v1.models.list().models
        ],
        "cut v1": lambda: len(v1.embed(**{**given, "texts": [TOO_LONG, "a text"]}).embeddings),
        "cut v2": lambda: len(
            v2.embed(**{**given, "texts": [TOO_LONG, "a text"]}, embedding_types=["float"]).embeddings.float_
        ),
        "cut in a rerank": lambda: len(v2.rerank(**{**asked, "documents": [TOO_LONG, "a text"]}).results),
        "error": lambda: v2.embed(**{**given, "model": UNKNOWN}, embedding_types=["float"]),
        "error v1": lambda: v1.embed(**{**given, "model": UNKNOWN}),
        "too long": lambda: v2.embed(
            **{**given, "texts": [TOO_LONG]}, embedding_types=["float"], truncate="NONE"
        ),
        "retried": lambda: len(
            v2.embed(**{**given, "texts": TEXTS[:2]}, embedding_types=["float"]).embeddings.float_
        ),
        "retried v1": lambda: len(v1.embed(**{**given, "texts": TEXTS[:2]}).embeddings),
    }
)
