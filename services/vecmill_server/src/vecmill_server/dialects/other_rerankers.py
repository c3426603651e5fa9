"""The rerank of Voyage, Weaviate, Mixedbread and Fireworks.

Voyage's `/embeddings` has the body of OpenAI's. Some clients leave out both keys by which its `/rerank` is
known: the npm package, Continue and LiteLLM. They need a path of Voyage's own, below `/voyage`, which has
`/embeddings` too, because a client has one base URL.

Source: the API references, the packages `voyageai`, `mixedbread` and `litellm`, and Weaviate's module
reranker-transformers.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from vecmill.requests import Rerank
from vecmill.results import RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, an_object
from vecmill_server.dialects import fields
from vecmill_server.dialects.dialect import (
    MIXEDBREAD_RERANK,
    RERANK_PATHS,
    RERANKING_PATHS,
    SENTENCE_STYLE,
    VOYAGE_RERANK,
    WEAVIATE_RERANK,
    Asked,
    Envelope,
    InferenceRoute,
    Marks,
)
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.rerank_body import (
    RankedBody,
    RankedDocument,
    describe_result,
    document_list,
    no_result_limit,
    result_limit,
    write_results,
)
from vecmill_server.dialects.response_parts import USAGE, write_usage
from vecmill_server.dialects.text_fields import MODEL
from vecmill_server.dialects.truncated_inputs import with_truncated

_RETURN_NOTE = "Whether results have their documents."


def _write_mixedbread(
    top_k: int | None, documents: Sequence[JsonValue] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    entries = write_results(result, top_k, documents, score="score", document="input")
    return {
        "usage": write_usage(result.token_count),
        "model": envelope.model,
        "data": [{**entry, "object": "rank_result"} for entry in entries],
        "object": "list",
        "top_k": len(entries),
        "return_input": documents is not None,
    }


class MixedbreadRerankRequest(RankedBody):
    """The body of `/reranking` with `input` in place of `documents`, from Mixedbread's client."""

    documents = document_list("input")
    top_k = result_limit("top_k", "top_n")
    return_input = fields.flag("return_input", note=_RETURN_NOTE).otherwise(False)
    rewrite_query = fields.fixed(
        "rewrite_query",
        json_schema.NEVER,
        lambda value, name: not fields.to_flag(value, name),
        "`rewrite_query` must be false: this server does not rewrite queries.",
        "Queries are never rewritten.",
    )
    marks = MIXEDBREAD_RERANK
    responses = (
        Component(
            "MixedbreadRerankResponse",
            with_truncated(
                {
                    "usage": USAGE,
                    "model": str,
                    "data": [
                        an_object(
                            ("index", "score", "object"),
                            {
                                "index": int,
                                "score": float,
                                "input": json_schema.ANYTHING,
                                "object": "rank_result",
                            },
                        )
                    ],
                    "object": "list",
                    "top_k": int,
                    "return_input": bool,
                }
            ),
        ),
    )

    def read(self) -> Asked:
        documents = self.documents
        returned = [_as_given(each) for each in documents] if self.return_input else None
        write = partial(_write_mixedbread, self.top_k, returned)
        return self.asked(self.read_request(documents), write, documents="input")


def _as_given(document: RankedDocument) -> JsonValue:
    is_text = document.as_sent == {"text": document.text}
    return document.text if is_text else document.as_sent


_FIREWORKS_PREFIXES = ("accounts/fireworks/models/", "fireworks/")


def _read_fireworks_model(body: RequestBody) -> str | None:
    name = MODEL.read(body)
    found = next((each for each in _FIREWORKS_PREFIXES if name is not None and name.startswith(each)), "")
    return None if name is None else name.removeprefix(found)


def _write_fireworks(
    top_n: int | None, documents: tuple[str, ...] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    return {
        "object": "list",
        "model": envelope.model,
        "data": write_results(result, top_n, documents),
        "usage": write_usage(result.token_count),
    }


class FireworksRerankRequest(RankedBody):
    """The body of `/inference/v1/rerank`. LiteLLM puts `fireworks/` before the name of every model."""

    model = Field(MODEL.properties, _read_fireworks_model)
    top_n = result_limit("top_n", "top_k")
    return_documents = fields.flag("return_documents", note=f"{_RETURN_NOTE} True by default.").otherwise(
        True
    )
    responses = (
        Component(
            "FireworksRerankResponse",
            with_truncated({"object": "list", "model": str, "data": [describe_result(str)], "usage": USAGE}),
        ),
    )

    def read(self) -> Asked:
        request = self.read_request(self.documents)
        returned = request.documents if self.return_documents else None
        return self.asked(request, partial(_write_fireworks, self.top_n, returned))


_VOYAGE_RESPONSE = Component(
    "VoyageRerankResponse",
    with_truncated(
        {"object": "list", "data": [describe_result(str)], "model": str, "usage": {"total_tokens": int}}
    ),
)


def _write_voyage(
    top_k: int | None, documents: tuple[str, ...] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    return {
        "object": "list",
        "data": write_results(result, top_k, documents),
        "model": envelope.model,
        "usage": {"total_tokens": result.token_count},
    }


_RETURN_DOCUMENTS = fields.flag("return_documents", note=_RETURN_NOTE)


class VoyageRerankRequest(RankedBody):
    """The body of `/rerank` from Voyage's clients. `truncation` and `top_k` are often null."""

    top_k = result_limit("top_k", "top_n")
    return_documents = _RETURN_DOCUMENTS.otherwise(False)
    marks = VOYAGE_RERANK
    rules: ClassVar[Mapping[str, Any]] = json_schema.described(
        RankedBody.rules, "Voyage's, known by `truncation` or `top_k`."
    )
    responses = (_VOYAGE_RESPONSE,)

    def read(self) -> Asked:
        request = self.read_request(self.documents)
        returned = request.documents if self.return_documents else None
        return self.asked(request, partial(_write_voyage, self.top_k, returned))


class VoyagePathRerankRequest(VoyageRerankRequest):
    """The body of `/voyage/v1/rerank`, which needs no key to be recognised.

    Results have their documents by default: Continue requires documents, and does not ask for documents.
    """

    return_documents = _RETURN_DOCUMENTS.otherwise(True)
    rules = RankedBody.rules
    marks = Marks()


_WEAVIATE_RESPONSE = Component(
    "WeaviateRerankResponse", with_truncated({"scores": [{"document": str, "score": float}]})
)


def _write_weaviate(request: Rerank, result: RerankResult, _envelope: Envelope) -> JsonValue:
    pairs = zip(request.documents, result.scores, strict=True)
    return {"scores": [{"document": document, "score": score} for document, score in pairs]}


class WeaviateRerankRequest(RankedBody):
    """The body of `/rerank` from reranker-transformers. Only the presence of `property` matters."""

    property = Field(
        {"property": json_schema.described(json_schema.ANYTHING, "Its presence makes the body Weaviate's.")},
        lambda body: None,
    )
    top_n = no_result_limit("top_n")
    style = SENTENCE_STYLE
    marks = WEAVIATE_RERANK
    rules = json_schema.described(
        RankedBody.rules, "That of Weaviate's reranker-transformers, known by `property`."
    )
    responses = (_WEAVIATE_RESPONSE,)

    def read(self) -> Asked:
        request = self.read_request(self.documents)
        return self.asked(request, partial(_write_weaviate, request))


ROUTES = (
    InferenceRoute("rerank", RERANKING_PATHS, "", (MixedbreadRerankRequest,)),
    InferenceRoute(
        "rerank", ("/inference/v1/rerank",), "Rank documents, as Fireworks", (FireworksRerankRequest,)
    ),
    InferenceRoute("embeddings", ("/inference/v1/embeddings",), "Embed texts", (EmbeddingsRequest,)),
    InferenceRoute("rerank", RERANK_PATHS, "", (VoyageRerankRequest,)),
    InferenceRoute(
        "rerank", ("/voyage/v1/rerank",), "Score documents, as Voyage", (VoyagePathRerankRequest,)
    ),
    InferenceRoute("embeddings", ("/voyage/v1/embeddings",), "Embed texts", (EmbeddingsRequest,)),
    InferenceRoute("rerank", RERANK_PATHS, "", (WeaviateRerankRequest,)),
)
