"""The embeddings and the rerank of Alibaba's Model Studio (DashScope), at the paths that its clients call.

Bodies have their texts in `input` and their options in `parameters`. Source: the API references, and the
packages `dashscope`, `litellm` and `lightrag`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from vecmill.errors import fields_renamed
from vecmill.requests import Embed
from vecmill.results import EmbedResult, RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_io import kind_of
from vecmill_server.base.json_schema import Component, an_object
from vecmill_server.dialects import fields
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute, Marks
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import Field, Json, RequestBody
from vecmill_server.dialects.rerank_body import (
    RankedBody,
    RerankRequest,
    describe_result,
    result_limit,
    write_results,
)
from vecmill_server.dialects.response_parts import USAGE, write_usage
from vecmill_server.dialects.text_fields import TRUNCATION, purpose, text_options
from vecmill_server.dialects.truncated_inputs import with_truncated

_INPUT, _PARAMETERS, _INSTRUCT = "input", "parameters", "instruct"


def _around(output: Mapping[str, JsonValue], tokens: int, envelope: Envelope) -> JsonValue:
    return {"output": output, "usage": write_usage(tokens), "request_id": envelope.request_id}


def _describe_response(name: str, **output: Any) -> Component:
    return Component(name, with_truncated({"output": output, "usage": USAGE, "request_id": str}))


def _describe(parts: Sequence[Field[Any]], **more: object) -> Mapping[str, Any]:
    required = [name for part in parts for name in part.required]
    return an_object(required, {k: v for part in parts for k, v in part.properties.items()}, **more)


def _read_part(body: RequestBody, name: str) -> Json:
    value = body.json.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise fields.invalid(name, f"must be an object, not {kind_of(value)}.")
    return value


def _pick(given: Json, parts: Sequence[Field[Any]]) -> dict[str, Any]:
    names = [name for part in parts for name in part.properties]
    return {name: given[name] for name in names if name in given}


def _input_of(parts: Sequence[Field[Any]]) -> Field[Json]:
    return Field({_INPUT: _describe(parts)}, lambda body: _read_part(body, _INPUT), (_INPUT,))


def _parameters_of(parts: Sequence[Field[Any]]) -> Field[Json]:
    schema = json_schema.of_the_model(_describe(parts, nullable=True), "The options.")
    return Field({_PARAMETERS: schema}, lambda body: _read_part(body, _PARAMETERS))


class AlibabaBody(InferenceBody):
    """A body of two parts, whose fields together are a body of the class `flat`.

    `wanted` are the fields of `input`. `places` are the fields that errors of the model name, by the
    library's names.
    """

    flat: ClassVar[type[InferenceBody]]
    of_input: ClassVar[tuple[Field[Any], ...]]
    of_parameters: ClassVar[tuple[Field[Any], ...]]
    wanted: ClassVar[str]
    places: ClassVar[Mapping[str, str]]
    truncation = TRUNCATION

    def read(self) -> Asked:
        if self.json.get(_INPUT) is None:
            raise fields.invalid(_INPUT, f"is required: an object with {self.wanted}.")
        of_input, of_parameters = _read_part(self, _INPUT), _read_part(self, _PARAMETERS)
        flat = {
            **_pick(self.json, (self.__class__.model, TRUNCATION)),
            **_pick(of_input, self.of_input),
            **_pick(of_parameters, self.of_parameters),
        }
        with fields_renamed(**self._names_in_parts()):
            asked = self.flat.parse(flat, self.dialect_options)
        return self.asked(asked.request, asked.write, **self.places)

    @classmethod
    def _parts(cls) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the names of the fields of each part."""
        parts = ((_INPUT, cls.of_input), (_PARAMETERS, cls.of_parameters))
        return tuple((name, tuple(each for field in of for each in field.properties)) for name, of in parts)

    @classmethod
    def _names_in_parts(cls) -> dict[str, str]:
        return {each: f"{name}.{each}" for name, known in cls._parts() for each in known}

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        unknown = super().unknown_fields(json)
        for name, known in cls._parts():
            given = json.get(name)
            if isinstance(given, dict):
                unknown += [f"{name}.{each}" for each in given if each not in known]
        return unknown


def _write_embeddings(result: EmbedResult, envelope: Envelope) -> JsonValue:
    embeddings = [{"text_index": index, "embedding": row} for index, row in enumerate(result.embeddings)]
    return _around({"embeddings": embeddings}, result.token_count, envelope)


class _AlibabaEmbedding(InferenceBody):
    """The parts of Alibaba's body as one object."""

    texts = fields.text_or_texts("texts")
    dimension = fields.count(
        "dimension", note="The number of dimensions to keep; 0 keeps all.", depends_on_model=True
    )
    options = text_options(purpose=purpose("text_type"), truncation=TRUNCATION)
    output_type = fields.fixed(
        "output_type",
        json_schema.one_of_words(("dense",)),
        lambda value, name: fields.to_string(value, name) == "dense",
        "`parameters.output_type` must be dense: /embed_sparse returns sparse embeddings.",
        "Only dense embeddings are returned.",
    )
    instruct = fields.refused(
        _INSTRUCT,
        "`parameters.instruct` is not applied: put the instruction before the texts, or send `prompt` to "
        "/v1/embeddings.",
        "See `prompt` at /v1/embeddings.",
    )

    def read(self) -> Asked:
        request = Embed(self.texts, self.dimension, options=self.options)
        return self.asked(request, _write_embeddings)


class AlibabaEmbedRequest(AlibabaBody):
    """The body of Alibaba's `/api/v1/services/embeddings/text-embedding/text-embedding`."""

    flat = _AlibabaEmbedding
    of_input = (_AlibabaEmbedding.texts,)
    of_parameters = (
        _AlibabaEmbedding.dimension,
        _AlibabaEmbedding.options,
        _AlibabaEmbedding.output_type,
        _AlibabaEmbedding.instruct,
    )
    wanted = "`texts`"
    places: ClassVar[Mapping[str, str]] = {"input": "input.texts", "dimensions": "parameters.dimension"}
    parts, parameters = _input_of(of_input), _parameters_of(of_parameters)
    responses = (
        _describe_response("AlibabaEmbedResponse", embeddings=[{"text_index": int, "embedding": [float]}]),
    )


def _write_ranking(
    top_n: int | None, documents: Sequence[JsonValue] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    return _around({"results": write_results(result, top_n, documents)}, result.token_count, envelope)


class _AlibabaRanking(RankedBody):
    """The parts of Alibaba's body as one object, with the names of Cohere's."""

    top_n = result_limit("top_n", "top_k")
    return_documents = fields.flag(
        "return_documents", note="Whether results have their documents."
    ).otherwise(False)
    instruction = fields.string(
        _INSTRUCT, note="The task, for rerankers that are language models.", depends_on_model=True
    )

    def read(self) -> Asked:
        documents = self.documents
        returned = [each.as_sent for each in documents] if self.return_documents else None
        return self.asked(self.read_request(documents), partial(_write_ranking, self.top_n, returned))


class AlibabaRerankRequest(AlibabaBody):
    """The body of Alibaba's `/api/v1/services/rerank/text-rerank/text-rerank`."""

    flat = _AlibabaRanking
    of_input = (_AlibabaRanking.query, _AlibabaRanking.documents)
    of_parameters = (_AlibabaRanking.top_n, _AlibabaRanking.return_documents, _AlibabaRanking.instruction)
    wanted = "`query` and `documents`"
    places: ClassVar[Mapping[str, str]] = {"query": "input.query", "documents": "input.documents"}
    parts, parameters = _input_of(of_input), _parameters_of(of_parameters)
    responses = (
        _describe_response(
            "AlibabaRerankResponse", results=[describe_result(json_schema.like({"type": "object"}))]
        ),
    )


class AlibabaCompatibleRerankRequest(RerankRequest):
    """The body of `/compatible-api/v1/reranks`, which is that of Cohere's `/rerank`."""

    schema_name = "AlibabaCompatibleRerankRequest"
    instruction = fields.string(
        "instruction",
        _INSTRUCT,
        note="The task, for rerankers that are language models.",
        depends_on_model=True,
    )
    marks = Marks()


_SERVICES = "/api/v1/services"
ROUTES = (
    InferenceRoute(
        "embeddings",
        (f"{_SERVICES}/embeddings/text-embedding/text-embedding",),
        "Embed texts, as Alibaba",
        (AlibabaEmbedRequest,),
    ),
    InferenceRoute("embeddings", ("/compatible-mode/v1/embeddings",), "Embed texts", (EmbeddingsRequest,)),
    InferenceRoute(
        "rerank",
        ("/compatible-api/v1/reranks", "/v1/reranks", "/reranks"),
        "Rank documents, as Alibaba's compatible API",
        (AlibabaCompatibleRerankRequest,),
    ),
    InferenceRoute(
        "rerank",
        (f"{_SERVICES}/rerank/text-rerank/text-rerank",),
        "Rank documents, as Alibaba",
        (AlibabaRerankRequest,),
    ),
)
