"""The body of `/classify` and its answer, in Infinity's shape or vLLM's.

A body with the key `raw_scores` is Infinity's, which always sends it; any other is vLLM's.
"""

from dataclasses import dataclass
from typing import Any

from vecmill.types import ClassifyResult
from vecmill_server.wire.documents import (
    Envelope,
    decode_object,
    encode_json,
    read_raw_scores,
    read_string,
    read_texts,
    refuse_other_modalities,
)


@dataclass(frozen=True, slots=True)
class ClassifyCall:
    """The body of a request to classify. `as_infinity` is the shape of the answer."""

    model: str | None
    inputs: tuple[str, ...]
    raw_scores: bool
    as_infinity: bool


def decode_classify(body: bytes) -> ClassifyCall:
    """Read the body of a request to classify. Raises `InvalidJson` or `InvalidRequest`."""
    document = decode_object(body)
    refuse_other_modalities(document)
    return ClassifyCall(
        model=read_string(document, "model"),
        inputs=read_texts(document, "input")[0],
        raw_scores=read_raw_scores(document),
        as_infinity="raw_scores" in document,
    )


def encode_classify(result: ClassifyResult, call: ClassifyCall, envelope: Envelope) -> bytes:
    """The answer to a request to classify, in input order."""
    tokens = result.token_count
    return encode_json(
        {
            "id": f"classify-{envelope.request_id}",
            "object": "classify" if call.as_infinity else "list",
            "created": envelope.created,
            "model": envelope.model,
            "data": _as_infinity(result) if call.as_infinity else _as_vllm(result),
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def _as_infinity(result: ClassifyResult) -> list[list[dict[str, Any]]]:
    """All labels of each input, the best first."""
    return [
        [{"score": score, "label": label} for label, score in result.ranked(index)]
        for index in range(len(result.scores))
    ]


def _as_vllm(result: ClassifyResult) -> list[dict[str, Any]]:
    """The best label of each input, and the scores of all in the model's order."""
    return [
        {
            "index": index,
            "label": result.ranked(index)[0][0],
            "probs": scores,
            "num_classes": len(result.labels),
        }
        for index, scores in enumerate(result.scores)
    ]
