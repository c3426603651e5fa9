"""The rerank of Voyage, Weaviate, Mixedbread, DeepInfra and Pinecone.

Voyage's `/embeddings` has the body of OpenAI's. Some clients leave out both keys by which its `/rerank` is
known: the npm package, Continue and LiteLLM. They need a path of Voyage's own, below `/voyage`, which has
`/embeddings` too, because a client has one base URL.

Source: the API references, and the packages `voyageai`, `mixedbread`, `litellm` and `pinecone`, and
Weaviate's module reranker-transformers.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from vecmill.requests import Rerank
from vecmill.results import RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, an_object, like
from vecmill_server.dialects import fields, known_fields, text_fields
from vecmill_server.dialects.dialect import (
    MIXEDBREAD_RERANK,
    RERANK_PATHS,
    RERANKING_PATHS,
    SENTENCE_STYLE,
    VOYAGE_RERANK,
    WEAVIATE_RERANK,
    Asked,
    Envelope,
    InferenceBody,
    InferenceRoute,
    Marks,
)
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import DialectOptions, Field, Json, RequestBody
from vecmill_server.dialects.parameters import with_parameters
from vecmill_server.dialects.rerank_body import (
    TOP_NOTE,
    RankedBody,
    RankedDocument,
    describe_result,
    document_list,
    write_results,
)
from vecmill_server.dialects.response_parts import USAGE, write_usage
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
    top_k = fields.count("top_k", note=TOP_NOTE)
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


def _write_deepinfra(result: RerankResult, envelope: Envelope) -> JsonValue:
    return {
        "scores": result.scores,
        "input_tokens": result.token_count,
        "request_id": envelope.request_id,
        "inference_status": {
            "status": "succeeded",
            "runtime_ms": round(result.timings.total_s * 1000),
            "cost": 0.0,
            "tokens_generated": 0,
            "tokens_input": result.token_count,
        },
    }


_STATUS = {"status": str, "runtime_ms": int, "cost": float, "tokens_generated": int, "tokens_input": int}


class DeepInfraRankRequest(InferenceBody):
    """The body of `/v1/inference/{model}`: one query for all documents, or one query for each."""

    model = text_fields.PATH_MODEL
    queries = fields.text_list("queries")
    documents = fields.text_list("documents")
    instruction = text_fields.INSTRUCTION
    options = text_fields.text_options(truncation=text_fields.TRUNCATION)
    harmless = known_fields.CALLER
    responses = (
        Component(
            "DeepInfraRankResponse",
            with_truncated(
                {"scores": [float], "input_tokens": int, "request_id": str, "inference_status": _STATUS}
            ),
        ),
    )

    def read(self) -> Asked:
        queries = self.queries
        if len(set(queries)) == 1:
            queries = queries[:1]
        request = Rerank(queries, self.documents, instruction=self.instruction, options=self.options)
        return self.asked(request, _write_deepinfra, query="queries")


def _write_pinecone(
    top_n: int | None, documents: Sequence[JsonValue] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    data = write_results(result, top_n, documents, score="score")
    return {"model": envelope.model, "data": data, "usage": {"rerank_units": 1}}


_PARAMETERS = "parameters"
# The options that Pinecone's client puts into `parameters`.
_IN_PARAMETERS: tuple[Field[Any], ...] = (text_fields.TRUNCATION, RankedBody.chunks)
_PARAMETER_SCHEMAS = {name: schema for field in _IN_PARAMETERS for name, schema in field.properties.items()}


def _read_parameters(body: RequestBody) -> Json:
    """Return the options in `parameters`."""
    given = body.json.get(_PARAMETERS)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise fields.invalid(_PARAMETERS, "must be an object.")
    options = {name: value for name, value in given.items() if name in _PARAMETER_SCHEMAS}
    inner = RequestBody(options, body.dialect_options)
    for field in _IN_PARAMETERS:
        field.read(inner)  # checks options that the body overrides too
    return options


class PineconeRerankRequest(RankedBody):
    """The body of `/rerank` from Pinecone's client, which has a path of its own."""

    top_n = fields.count("top_n", note=TOP_NOTE)
    return_documents = fields.flag("return_documents", note=f"{_RETURN_NOTE} True by default.").otherwise(
        True
    )
    parameters: Field[Json] = Field(
        {
            _PARAMETERS: json_schema.of_the_model(
                an_object((), _PARAMETER_SCHEMAS, nullable=True),
                "The place of these options in Pinecone's client. The fields of the body take precedence.",
            )
        },
        _read_parameters,
    )
    responses = (
        Component(
            "PineconeRerankResponse",
            with_truncated(
                {
                    "model": str,
                    "data": [
                        an_object(
                            ("index", "score"),
                            {"index": int, "score": float, "document": like({"type": "object"})},
                        )
                    ],
                    "usage": {"rerank_units": int},
                }
            ),
        ),
    )

    @classmethod
    def parse(cls, json: Json, options: DialectOptions) -> Asked:
        return cls(with_parameters(json, cls(json, options).parameters), options).read()

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        unknown, parameters = super().unknown_fields(json), json.get(_PARAMETERS)
        if isinstance(parameters, dict):
            unknown += [f"{_PARAMETERS}.{name}" for name in parameters if name not in _PARAMETER_SCHEMAS]
        return unknown

    def read(self) -> Asked:
        documents = self.documents
        returned = [each.as_sent for each in documents] if self.return_documents else None
        return self.asked(self.read_request(documents), partial(_write_pinecone, self.top_n, returned))


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

    top_k = fields.count("top_k", note=TOP_NOTE)
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
        "rerank", ("/v1/inference/{model:path}",), "Score documents, as DeepInfra", (DeepInfraRankRequest,)
    ),
    InferenceRoute("rerank", ("/pinecone/rerank",), "Rank documents, as Pinecone", (PineconeRerankRequest,)),
    InferenceRoute("rerank", RERANK_PATHS, "", (VoyageRerankRequest,)),
    InferenceRoute(
        "rerank", ("/voyage/v1/rerank",), "Score documents, as Voyage", (VoyagePathRerankRequest,)
    ),
    InferenceRoute("embeddings", ("/voyage/v1/embeddings",), "Embed texts", (EmbeddingsRequest,)),
    InferenceRoute("rerank", RERANK_PATHS, "", (WeaviateRerankRequest,)),
)
