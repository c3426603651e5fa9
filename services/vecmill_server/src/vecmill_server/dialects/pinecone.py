"""Pinecone's `/embed` and `/rerank`, which have paths of their own, because other APIs have the same paths.

Requests with the header of Pinecone's client are passed on to these paths (`app.request_options`). Source:
the API reference, and the package `pinecone`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from vecmill.requests import Embed, EmbedSparse
from vecmill.results import EmbedResult, EmbedSparseResult, RerankResult
from vecmill.values.aliases import JsonValue
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema, an_object, like
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects import fields, known_fields, text_fields
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute
from vecmill_server.dialects.fields import DialectOptions, Field, Json, RequestBody
from vecmill_server.dialects.parameters import INPUTS, PARAMETERS, with_parameters
from vecmill_server.dialects.rerank_body import RankedBody, result_limit, write_results
from vecmill_server.dialects.truncated_inputs import with_truncated

PINECONE_HEADER = b"x-pinecone-api-version"
PREFIX = "/pinecone"


class PineconeBody(InferenceBody):
    """A body of Pinecone's client, which puts the fields `in_parameters` into the object `parameters`."""

    in_parameters: ClassVar[tuple[Field[Any], ...]] = ()
    also_read = frozenset({PARAMETERS})

    @classmethod
    def _parameter_schemas(cls) -> dict[str, Any]:
        return {name: schema for each in cls.in_parameters for name, schema in each.properties.items()}

    @classmethod
    def schema(cls, settings: ServerSettings) -> Schema:
        parameters = json_schema.of_the_model(
            an_object((), cls._parameter_schemas(), nullable=True),
            "The place of these options in Pinecone's client. The fields of the body take precedence.",
        )
        schema = super().schema(settings)
        return {**schema, "properties": {**schema["properties"], PARAMETERS: parameters}}

    @classmethod
    def parse(cls, json: Json, options: DialectOptions) -> Asked:
        given = json.get(PARAMETERS)
        if given is None:
            return super().parse(json, options)
        if not isinstance(given, dict):
            raise fields.invalid(PARAMETERS, "must be an object.")
        known = cls._parameter_schemas()
        parameters = {name: value for name, value in given.items() if name in known}
        inner = RequestBody(parameters, options)
        for each in cls.in_parameters:
            each.read(inner)  # checks options that the body overrides too
        return super().parse(with_parameters(json, parameters), options)

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        unknown, parameters = super().unknown_fields(json), json.get(PARAMETERS)
        if isinstance(parameters, dict):
            known = cls._parameter_schemas()
            unknown += [f"{PARAMETERS}.{name}" for name in parameters if name not in known]
        return unknown


def _write_embeddings(kind: str, data: list[Any], tokens: int, envelope: Envelope) -> JsonValue:
    return {
        "model": envelope.model,
        "vector_type": kind,
        "data": [{**each, "vector_type": kind} for each in data],
        "usage": {"total_tokens": tokens},
    }


def _write_dense(result: EmbedResult, envelope: Envelope) -> JsonValue:
    return _write_embeddings(
        "dense", [{"values": each} for each in result.embeddings], result.token_count, envelope
    )


def _write_sparse(result: EmbedSparseResult, envelope: Envelope) -> JsonValue:
    data = [{"sparse_values": each.values, "sparse_indices": each.columns} for each in result.embeddings]
    return _write_embeddings("sparse", data, result.token_count, envelope)


# The task of the model decides, the preferred task first.
_TASKS = (Task.EMBED, Task.SPARSE)
_DIMENSION = fields.count(
    "dimension", note="The number of dimensions to keep; 0 keeps all.", depends_on_model=True
)
_PURPOSE = text_fields.purpose("input_type")


class PineconeEmbedRequest(PineconeBody):
    """The body of Pinecone's `/embed`. A sparse model gives sparse embeddings."""

    inputs = text_fields.embed_inputs(INPUTS)
    dimension = _DIMENSION
    options = text_fields.text_options(purpose=_PURPOSE, truncation=text_fields.TRUNCATION)
    in_parameters = (_PURPOSE, text_fields.TRUNCATION, _DIMENSION)
    harmless = known_fields.CALLER
    responses = (
        Component(
            "PineconeEmbedResponse",
            with_truncated(
                {
                    "model": str,
                    "vector_type": json_schema.word("dense", "sparse"),
                    "data": [
                        an_object(
                            ("vector_type",),
                            {
                                "vector_type": json_schema.word("dense", "sparse"),
                                "values": [float],
                                "sparse_values": [float],
                                "sparse_indices": [int],
                            },
                        )
                    ],
                    "usage": {"total_tokens": int},
                }
            ),
        ),
    )

    def read(self) -> Asked:
        inputs, dimension, options = self.inputs, self.dimension, self.options
        if self.dialect_options.task_of(self.model, _TASKS) is not Task.SPARSE:
            return self.asked(Embed(inputs, dimension, options=options), _write_dense, input=INPUTS)
        if dimension is not None:
            raise fields.invalid("dimension", "is not for this model, whose embeddings are sparse.")
        return self.asked(EmbedSparse(inputs, options=options), _write_sparse, input=INPUTS)


def _write_ranking(
    top_n: int | None, documents: Sequence[JsonValue] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    data = write_results(result, top_n, documents, score="score")
    return {"model": envelope.model, "data": data, "usage": {"rerank_units": 1}}


_LIMIT = result_limit("top_n", "top_k")


class PineconeRerankRequest(PineconeBody, RankedBody):
    """The body of `/rerank` from Pinecone's client."""

    top_n = _LIMIT
    return_documents = fields.flag(
        "return_documents", note="Whether results have their documents. True by default."
    ).otherwise(True)
    in_parameters = (text_fields.TRUNCATION, RankedBody.chunks, _LIMIT)
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

    def read(self) -> Asked:
        documents = self.documents
        returned = [each.as_sent for each in documents] if self.return_documents else None
        return self.asked(self.read_request(documents), partial(_write_ranking, self.top_n, returned))


ROUTES = (
    InferenceRoute("embed", (f"{PREFIX}/embed",), "Embed texts, as Pinecone", (PineconeEmbedRequest,)),
    InferenceRoute("rerank", (f"{PREFIX}/rerank",), "Rank documents, as Pinecone", (PineconeRerankRequest,)),
)
