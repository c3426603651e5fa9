"""NVIDIA's rerank, at the paths of its containers and of its hosted API.

Source: the API reference, the package `langchain-nvidia-ai-endpoints`, and NVIDIA's OpenAPI documents.
"""

from functools import partial

from vecmill.requests import Rerank
from vecmill.results import RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, an_object
from vecmill_server.dialects import fields, known_fields, text_fields
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.rerank_body import result_limit, write_results
from vecmill_server.dialects.response_parts import USAGE, write_usage
from vecmill_server.dialects.text_fields import MODEL
from vecmill_server.dialects.truncated_inputs import with_truncated


def _write_nvidia(top_n: int | None, result: RerankResult, _envelope: Envelope) -> JsonValue:
    rankings = write_results(result, top_n, score="logit")
    return {"rankings": rankings, "usage": write_usage(result.token_count)}


def _to_passage(value: JsonValue, field: str) -> str:
    if isinstance(value, dict) and value.get("image") is not None:
        raise fields.invalid(field, "has an image, and this route reads only text.")
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise fields.invalid(field, 'must be {"text": a string}, or a string.')
    return text


_PASSAGE = json_schema.any_of(str, an_object(("text",), {"text": str, "image": json_schema.NOTHING}))


class NvidiaRankRequest(InferenceBody):
    """The body of `/ranking`. The scores are logits: the model's activation function is left out."""

    query = fields.required("query", _PASSAGE, _to_passage, 'a string, or {"text": a string}')
    passages = fields.required(
        "passages",
        {"type": "array", "minItems": 1, "items": _PASSAGE},
        fields.texts_of(_to_passage),
        "a list of texts",
    )
    options = text_fields.text_options(truncation=text_fields.TRUNCATION)
    top_n = result_limit("top_n", "top_k")
    harmless = known_fields.CALLER
    responses = (
        Component(
            "NvidiaRankResponse",
            with_truncated({"rankings": [{"index": int, "logit": float}], "usage": USAGE}),
        ),
    )

    def read(self) -> Asked:
        request = Rerank((self.query,), self.passages, raw_scores=True, options=self.options)
        return self.asked(request, partial(_write_nvidia, self.top_n), documents="passages")


_NAME = "name"


def _read_nvidia_model(body: RequestBody) -> str | None:
    return MODEL.read(body) or body.json.get(_NAME)


class NvidiaPathRankRequest(NvidiaRankRequest):
    """The body of `/v1/retrieval/{name}/reranking`.

    The name in the path has no dots (`llama-3_2` for `llama-3.2`), so that of the body counts if it has one.
    """

    model = Field(MODEL.properties, _read_nvidia_model)
    also_read = frozenset({_NAME})


ROUTES = (
    InferenceRoute("rerank", ("/ranking", "/v1/ranking"), "Rank passages, as NVIDIA", (NvidiaRankRequest,)),
    InferenceRoute(
        "rerank",
        ("/v1/retrieval/{name:path}/reranking",),
        "Rank passages, as NVIDIA's hosted models",
        (NvidiaPathRankRequest,),
    ),
)
