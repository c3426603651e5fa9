"""The rerank of Fireworks' and Alibaba's hosted APIs, at the paths that their clients call.

Source: the API references, and the packages `litellm` and `lightrag`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from vecmill.errors import fields_renamed
from vecmill.results import RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_io import kind_of
from vecmill_server.base.json_schema import Component, an_object
from vecmill_server.dialects import fields
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute, Marks
from vecmill_server.dialects.fields import Field, Json, RequestBody
from vecmill_server.dialects.rerank_body import (
    TOP_NOTE,
    RankedBody,
    RerankRequest,
    describe_result,
    write_results,
)
from vecmill_server.dialects.response_parts import USAGE, write_usage
from vecmill_server.dialects.text_fields import MODEL, TRUNCATION
from vecmill_server.dialects.truncated_inputs import with_truncated

_RETURN_NOTE = "Whether results have their documents."
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
    top_n = fields.count("top_n", note=TOP_NOTE)
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


def _write_alibaba(
    top_n: int | None, documents: Sequence[JsonValue] | None, result: RerankResult, envelope: Envelope
) -> JsonValue:
    return {
        "output": {"results": write_results(result, top_n, documents)},
        "usage": write_usage(result.token_count),
        "request_id": envelope.request_id,
    }


class _AlibabaRanking(RankedBody):
    """The parts of Alibaba's body as one object, with the names of Cohere's."""

    top_n = fields.count("top_n", note=TOP_NOTE)
    return_documents = fields.flag("return_documents", note=_RETURN_NOTE).otherwise(False)

    def read(self) -> Asked:
        documents = self.documents
        returned = [each.as_sent for each in documents] if self.return_documents else None
        return self.asked(self.read_request(documents), partial(_write_alibaba, self.top_n, returned))


_INPUT, _PARAMETERS, _INSTRUCT = "input", "parameters", "instruct"
_OF_INPUT: tuple[Field[Any], ...] = (_AlibabaRanking.query, _AlibabaRanking.documents)
_OF_PARAMETERS: tuple[Field[Any], ...] = (
    _AlibabaRanking.top_n,
    _AlibabaRanking.return_documents,
    fields.string(_INSTRUCT, note="The task, for rerankers that are language models.", depends_on_model=True),
)


def _describe(parts: Sequence[Field[Any]], **more: object) -> Mapping[str, Any]:
    required = [name for part in parts for name in part.required]
    return an_object(required, {k: v for part in parts for k, v in part.properties.items()}, **more)


_NAMES_IN_PARTS: Mapping[str, str] = {
    **{name: f"{_INPUT}.{name}" for part in _OF_INPUT for name in part.properties},
    **{name: f"{_PARAMETERS}.{name}" for part in _OF_PARAMETERS for name in part.properties},
    "instruction": f"{_PARAMETERS}.{_INSTRUCT}",
}


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


class AlibabaRerankRequest(InferenceBody):
    """The body of Alibaba's `/api/v1/services/rerank/text-rerank/text-rerank`."""

    truncation = TRUNCATION
    parts: Field[Json] = Field(
        {_INPUT: _describe(_OF_INPUT)}, lambda body: _read_part(body, _INPUT), (_INPUT,)
    )
    parameters: Field[Json] = Field(
        {_PARAMETERS: json_schema.of_the_model(_describe(_OF_PARAMETERS, nullable=True), "The options.")},
        lambda body: _read_part(body, _PARAMETERS),
    )
    responses = (
        Component(
            "AlibabaRerankResponse",
            with_truncated(
                {
                    "output": {"results": [describe_result(json_schema.like({"type": "object"}))]},
                    "usage": USAGE,
                    "request_id": str,
                }
            ),
        ),
    )

    def read(self) -> Asked:
        if self.json.get(_INPUT) is None:
            raise fields.invalid(_INPUT, "is required: an object with `query` and `documents`.")
        flat = {
            **_pick(self.json, (self.__class__.model, TRUNCATION)),
            **_pick(self.parts, _OF_INPUT),
            **_pick(self.parameters, _OF_PARAMETERS),
        }
        flat["instruction"] = flat.pop(_INSTRUCT, None)
        with fields_renamed(**_NAMES_IN_PARTS):
            asked = _AlibabaRanking.parse(flat, self.dialect_options)
        return self.asked(asked.request, asked.write, query="input.query", documents="input.documents")

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        unknown = super().unknown_fields(json)
        for name, parts in ((_INPUT, _OF_INPUT), (_PARAMETERS, _OF_PARAMETERS)):
            given = json.get(name)
            known = {each for part in parts for each in part.properties}
            if isinstance(given, dict):
                unknown += [f"{name}.{each}" for each in given if each not in known]
        return unknown


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


ROUTES = (
    InferenceRoute(
        "rerank", ("/inference/v1/rerank",), "Rank documents, as Fireworks", (FireworksRerankRequest,)
    ),
    InferenceRoute(
        "rerank",
        ("/compatible-api/v1/reranks", "/v1/reranks", "/reranks"),
        "Rank documents, as Alibaba's compatible API",
        (AlibabaCompatibleRerankRequest,),
    ),
    InferenceRoute(
        "rerank",
        ("/api/v1/services/rerank/text-rerank/text-rerank",),
        "Rank documents, as Alibaba",
        (AlibabaRerankRequest,),
    ),
)
