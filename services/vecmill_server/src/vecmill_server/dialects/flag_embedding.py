"""`/encode`: several outputs of BGE-M3 at once, by the names of FlagEmbedding's `BGEM3FlagModel.encode`.

Other models answer too, if the only output asked for is theirs.
"""

from vecmill.requests import EmbedOutputs
from vecmill.results import EmbedOutputsResult
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import SparseEmbedding
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute
from vecmill_server.dialects.response_parts import USAGE, write_usage
from vecmill_server.dialects.truncated_inputs import with_truncated


def _write_weights(embedding: SparseEmbedding) -> dict[str, float]:
    pairs = zip(embedding.columns.tolist(), embedding.values.tolist(), strict=True)
    return {str(token_id): weight for token_id, weight in pairs}


def _write_outputs(result: EmbedOutputsResult, _envelope: Envelope) -> JsonValue:
    return {
        "dense_vecs": result.dense,
        "lexical_weights": None
        if result.sparse is None
        else [_write_weights(each) for each in result.sparse],
        "colbert_vecs": None if result.vectors is None else [list(each) for each in result.vectors],
        "usage": write_usage(result.token_count),
    }


_WEIGHTS = json_schema.described(
    {"type": "object", "additionalProperties": {"type": "number"}}, "Token ids and their weights."
)


class EncodeRequest(InferenceBody):
    """The body of `/encode`."""

    texts = fields.text_or_texts("sentences")
    dense = fields.flag(
        "return_dense", note="Whether to return `dense_vecs`; true by default.", depends_on_model=True
    ).otherwise(True)
    sparse = fields.flag(
        "return_sparse", note="Whether to return `lexical_weights`.", depends_on_model=True
    ).otherwise(False)
    vectors = fields.flag(
        "return_colbert_vecs", note="Whether to return `colbert_vecs`.", depends_on_model=True
    ).otherwise(False)
    options = text_fields.TEXT_OPTIONS
    rules = json_schema.all_of(
        json_schema.not_both("prompt", "prompt_name"),
        json_schema.any_true("return_sparse", "return_colbert_vecs", by_default="return_dense"),
    )
    responses = (
        Component(
            "EncodeResponse",
            with_truncated(
                {
                    "dense_vecs": json_schema.nullable([[float]]),
                    "lexical_weights": json_schema.nullable([_WEIGHTS]),
                    "colbert_vecs": json_schema.nullable([[[float]]]),
                    "usage": USAGE,
                }
            ),
        ),
    )

    def read(self) -> Asked:
        request = EmbedOutputs(self.texts, self.dense, self.sparse, self.vectors, options=self.options)
        return self.asked(request, _write_outputs, input="sentences", dense="return_dense")


ROUTES = (InferenceRoute("encode", ("/encode", "/v1/encode"), "All outputs of BGE-M3", (EncodeRequest,)),)
