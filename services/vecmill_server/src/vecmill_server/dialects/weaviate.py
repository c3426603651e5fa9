"""The `/rerank` of Weaviate's module reranker-transformers, recognised by the key `property`."""

from functools import partial

from vecmill.requests import Rerank
from vecmill.results import RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects.cohere_rerank import EXCLUSIVE_OPTIONS, RERANK_PATHS, RankedBody
from vecmill_server.dialects.dialect import SENTENCE_STYLE, Asked, Envelope, InferenceRoute
from vecmill_server.dialects.fields import Field, Json
from vecmill_server.dialects.voyage import is_voyage

_RESPONSE = Component("WeaviateRerankResponse", {"scores": [{"document": str, "score": float}]})


def _write(request: Rerank, result: RerankResult, _envelope: Envelope) -> JsonValue:
    pairs = zip(request.documents, result.scores, strict=True)
    return {"scores": [{"document": document, "score": score} for document, score in pairs]}


class WeaviateRerankRequest(RankedBody):
    """The body of `/rerank` from reranker-transformers. Only the presence of `property` matters."""

    property = Field(
        {"property": json_schema.described(json_schema.ANYTHING, "Its presence makes the body Weaviate's.")},
        lambda body: None,
    )
    style = SENTENCE_STYLE
    rules = json_schema.all_of(
        *EXCLUSIVE_OPTIONS,
        json_schema.without("texts", "truncation", "top_k"),
        {"required": ["property"]},
        description="That of Weaviate's reranker-transformers, known by `property`.",
    )
    responses = (_RESPONSE,)

    def read(self) -> Asked:
        request = self.read_request(self.documents)
        return self.asked(request, partial(_write, request))


def _is_weaviate(json: Json) -> bool:
    return json.get("texts") is None and not is_voyage(json) and "property" in json


ROUTES = (InferenceRoute("rerank", RERANK_PATHS, "", (WeaviateRerankRequest,), when=_is_weaviate),)
