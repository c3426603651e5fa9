"""DeepInfra's `/v1/inference/{model}`: the body tells whether to embed `inputs` or to rank `documents`.

Source: the API reference, and the packages `deepinfra`, `litellm` and those of LangChain and LlamaIndex.
"""

from vecmill.requests import Embed, Rerank
from vecmill.results import EmbedResult, RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects import fields, known_fields, text_fields
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute, Marks
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.rerank_body import no_result_limit
from vecmill_server.dialects.truncated_inputs import with_truncated

_STATUS = {"status": str, "runtime_ms": int, "cost": float, "tokens_generated": int, "tokens_input": int}


def _write(name: str, values: JsonValue, result: EmbedResult | RerankResult, envelope: Envelope) -> JsonValue:
    return {
        name: values,
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


def _response(kind: str, name: str, values: object) -> Component:
    return Component(
        f"DeepInfra{kind}Response",
        with_truncated({name: values, "input_tokens": int, "request_id": str, "inference_status": _STATUS}),
    )


def _write_scores(result: RerankResult, envelope: Envelope) -> JsonValue:
    return _write("scores", result.scores, result, envelope)


class DeepInfraRankRequest(InferenceBody):
    """The body of `/v1/inference/{model}`: one query for all documents, or one query for each."""

    model = text_fields.PATH_MODEL
    queries = fields.text_list("queries")
    documents = fields.text_list("documents")
    instruction = text_fields.INSTRUCTION
    options = text_fields.text_options(truncation=text_fields.TRUNCATION)
    top_n, top_k = no_result_limit("top_n"), no_result_limit("top_k")
    harmless = known_fields.CALLER
    responses = (_response("Rank", "scores", [float]),)

    def read(self) -> Asked:
        queries = self.queries
        if len(set(queries)) == 1:
            queries = queries[:1]
        request = Rerank(queries, self.documents, instruction=self.instruction, options=self.options)
        return self.asked(request, _write_scores, query="queries")


def _write_embeddings(result: EmbedResult, envelope: Envelope) -> JsonValue:
    return _write("embeddings", result.embeddings, result, envelope)


class DeepInfraEmbedRequest(InferenceBody):
    """The body of `/v1/inference/{model}` with `inputs`.

    `normalize` adds a normalisation. The clients send false by default, which leaves the model's own.
    """

    model = text_fields.PATH_MODEL
    inputs = text_fields.embed_inputs("inputs")
    normalize = fields.flag(
        "normalize", note="Whether to scale embeddings to length 1; by default as the model does."
    ).otherwise(False)
    dimensions = text_fields.DIMENSIONS
    options = text_fields.text_options(truncation=text_fields.TRUNCATION)
    image = fields.refused("image", "`image` is not read: this route reads only text.", "Only text is read.")
    webhook = fields.refused(
        "webhook", "`webhook` is not called: the response has the embeddings.", "Only the response has them."
    )
    marks = Marks(("inputs",), none_of=("queries", "documents"))
    harmless = known_fields.CALLER
    responses = (_response("Embed", "embeddings", [[float]]),)

    def read(self) -> Asked:
        normalize = True if self.normalize else None
        request = Embed(self.inputs, self.dimensions, normalize, options=self.options)
        return self.asked(request, _write_embeddings, input="inputs")


_PATHS = ("/v1/inference/{model:path}",)
ROUTES = (
    InferenceRoute(
        "inference", _PATHS, "Embed texts or score documents, as DeepInfra", (DeepInfraRankRequest,)
    ),
    InferenceRoute("inference", _PATHS, "", (DeepInfraEmbedRequest,)),
    InferenceRoute("embeddings", ("/v1/openai/embeddings",), "Embed texts", (EmbeddingsRequest,)),
)
