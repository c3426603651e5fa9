"""Voyage's `/rerank`, recognised by the key `truncation` or `top_k`, and the paths below `/voyage`.

Voyage's `/embeddings` is in `openai`. Some clients leave both keys out: the npm package, Continue and
LiteLLM. Their bodies are those of Cohere's clients, so these clients need a path of Voyage's own. The path
has `/embeddings` too, because a client has one base URL.
"""

from functools import partial

from vecmill.results import RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base.json_schema import Component, all_of, any_of, without
from vecmill_server.dialects.cohere_rerank import (
    EXCLUSIVE_OPTIONS,
    RERANK_PATHS,
    TOP_NOTE,
    RankedBody,
    describe_result,
    write_results,
)
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceRoute
from vecmill_server.dialects.fields import Json, count, flag
from vecmill_server.dialects.openai import EmbeddingsRequest

_RESPONSE = Component(
    "VoyageRerankResponse",
    {"object": "list", "data": [describe_result(str)], "model": str, "usage": {"total_tokens": int}},
)


def _write(
    top_k: int | None, documents: tuple[str, ...] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    return {
        "object": "list",
        "data": write_results(result, top_k, documents),
        "model": envelope.model,
        "usage": {"total_tokens": result.token_count},
    }


_RETURN_DOCUMENTS = flag("return_documents", note="Whether results have their documents.")


class VoyageRerankRequest(RankedBody):
    """The body of `/rerank` from Voyage's clients. `truncation` and `top_k` are often null."""

    top_k = count("top_k", note=TOP_NOTE)
    return_documents = _RETURN_DOCUMENTS.otherwise(False)
    rules = all_of(
        *EXCLUSIVE_OPTIONS,
        without("texts"),
        any_of({"required": ["truncation"]}, {"required": ["top_k"]}),
        description="Voyage's, known by `truncation` or `top_k`.",
    )
    responses = (_RESPONSE,)

    def read(self) -> Asked:
        request = self.read_request(self.documents)
        returned = request.documents if self.return_documents else None
        return self.asked(request, partial(_write, self.top_k, returned))


class VoyagePathRerankRequest(VoyageRerankRequest):
    """The body of `/voyage/v1/rerank`, which needs no key to be recognised.

    Results have their documents by default: Continue requires documents, and does not ask for documents.
    """

    return_documents = _RETURN_DOCUMENTS.otherwise(True)
    rules = all_of(*EXCLUSIVE_OPTIONS)


def is_voyage(json: Json) -> bool:
    """Return whether a body of `/rerank` comes from a Voyage client."""
    return json.get("texts") is None and ("truncation" in json or "top_k" in json)


ROUTES = (
    InferenceRoute("rerank", RERANK_PATHS, "", (VoyageRerankRequest,), when=is_voyage),
    InferenceRoute(
        "rerank", ("/voyage/v1/rerank",), "Score documents, as Voyage", (VoyagePathRerankRequest,)
    ),
    InferenceRoute("embeddings", ("/voyage/v1/embeddings",), "Embed texts", (EmbeddingsRequest,)),
)
