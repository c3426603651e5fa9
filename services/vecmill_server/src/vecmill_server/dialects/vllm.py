"""vLLM's `/score`, `/classify`, `/tokenize` and `/detokenize`; Infinity's `/classify`.

Source: vLLM's protocol classes. A body of `/classify` with the key `raw_scores` comes from an Infinity
client. `/pooling` is in `vllm_pooling`.
"""

from functools import partial
from typing import Any

from vecmill.requests import Classify, Detokenize, Rerank, Tokenize
from vecmill.results import ClassifyResult, DetokenizeResult, RerankResult, TokenizeResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.cohere import DetokenizeRequest
from vecmill_server.dialects.dialect import (
    Asked,
    Envelope,
    InferenceBody,
    InferenceRoute,
    describe_envelope,
    write_envelope,
    write_usage,
)
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.known_fields import InputBody, TemplatedBody
from vecmill_server.dialects.labels import LABEL, write_labels

# The names of the two sides of a score, in the order of precedence.
SCORE_KEYS = ("queries", "text_1", "data_1")
_DOCUMENTS = ("documents", "items", "text_2", "data_2")


def _side(names: tuple[str, ...]) -> Field[tuple[str, ...]]:
    first, *others = json_schema.TEXT_OR_TEXTS["anyOf"]
    schema = json_schema.of_the_model(
        {"anyOf": [{**first, "nullable": True}, *others]},
        f"A text or several. Its names, in the order of precedence: {', '.join(names)}.",
    )

    def read(body: RequestBody) -> tuple[str, ...]:
        given = [name for name in names if body.json.get(name) is not None]
        if not given:
            raise fields.invalid(names[0], "is required: a string, or a list of strings.")
        texts, *_ = [fields.to_texts(body.json[name], name) for name in given]
        return texts

    return Field(dict.fromkeys(names, schema), read)


def _one_is_present(names: tuple[str, ...]) -> Any:
    return json_schema.any_of(
        *({"required": [name], "properties": {name: json_schema.TEXT_OR_TEXTS}} for name in names)
    )


def describe_list(name: str, entry: Schema) -> Component:
    """Return the schema called `name` of a response whose `data` is a list of `entry`."""
    return Component(name, describe_envelope("list", data=[entry]))


def write_list(prefix: str, data: list[dict[str, Any]], tokens: int, envelope: Envelope) -> JsonValue:
    """Return a response with `data`. The id is `prefix` followed by the id of the request."""
    return {**write_envelope("list", prefix, envelope), "usage": write_usage(tokens), "data": data}


def _write_scores(result: RerankResult, envelope: Envelope) -> JsonValue:
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(result.scores)]
    return write_list("score", data, result.token_count, envelope)


class ScoreRequest(TemplatedBody):
    """The body of `/score`: one query for all documents, or one query for each document."""

    queries = _side(SCORE_KEYS)
    documents = _side(_DOCUMENTS)
    raw_scores = text_fields.RAW_SCORES
    options = text_fields.text_options(truncation=text_fields.TRUNCATION, **text_fields.PAIR_LIMITS)
    instruction = text_fields.INSTRUCTION
    rules = json_schema.all_of(_one_is_present(SCORE_KEYS), _one_is_present(_DOCUMENTS))
    responses = (describe_list("ScoreResponse", {"index": int, "object": "score", "score": float}),)

    def read(self) -> Asked:
        queries, documents, raw_scores = self.queries, self.documents, self.raw_scores
        request = Rerank(queries, documents, raw_scores, self.instruction, options=self.options)
        return self.asked(request, _write_scores)


def _write_classified(result: ClassifyResult, envelope: Envelope) -> JsonValue:
    """Write the best label of each input, and the scores of all labels in the model's order."""
    data = [
        {
            "index": index,
            "label": result.ranked(index)[0][0],
            "probs": scores,
            "num_classes": len(result.labels),
        }
        for index, scores in enumerate(result.scores)
    ]
    return write_list("classify", data, result.token_count, envelope)


def _write_as_infinity(result: ClassifyResult, envelope: Envelope) -> JsonValue:
    head = write_envelope("classify", "classify", envelope)
    return {**head, "usage": write_usage(result.token_count), "data": write_labels(result)}


class ClassifyRequest(InputBody):
    """The body of `/classify`. If it has `raw_scores`, the response has Infinity's shape."""

    modality = text_fields.MODALITY
    inputs = text_fields.embed_inputs("input")
    raw_scores = Field(
        {
            **text_fields.RAW_SCORES.properties,
            "raw_scores": json_schema.described(
                text_fields.RAW_SCORES.properties["raw_scores"],
                "Whether to leave out the activation function. Its presence selects Infinity's response.",
            ),
        },
        text_fields.RAW_SCORES.read,
    )
    options = text_fields.TRUNCATION_OPTIONS
    responses = (
        describe_list(
            "ClassifyResponse",
            {"index": int, "label": str, "probs": [float], "num_classes": int},
        ),
        Component("InfinityClassifyResponse", describe_envelope("classify", data=[[LABEL]])),
    )

    def read(self) -> Asked:
        write = _write_as_infinity if "raw_scores" in self.json else _write_classified
        return self.asked(Classify(self.inputs, self.raw_scores, options=self.options), write)


def _write_tokens(with_pieces: bool, result: TokenizeResult, _envelope: Envelope) -> JsonValue:
    (tokens,) = result.tokens
    return {
        "count": len(tokens),
        "max_model_len": result.max_tokens,
        "tokens": tokens.ids,
        "token_strs": tokens.pieces if with_pieces else None,
    }


ADD_SPECIAL_TOKENS = fields.flag(
    "add_special_tokens", note="Whether to add the model's special tokens; true by default."
).otherwise(True)


class TokenizeRequest(InferenceBody):
    """The body of `/tokenize`."""

    needs_engine = False
    prompt = fields.required_string("prompt")
    special = ADD_SPECIAL_TOKENS
    with_pieces = fields.flag(
        "return_token_strs", note="Whether to return the tokens as text too."
    ).otherwise(False)
    rules = json_schema.without("inputs", "text")
    responses = (
        Component(
            "TokenizeResponse",
            {"count": int, "max_model_len": int, "tokens": [int], "token_strs": json_schema.nullable([str])},
        ),
    )

    def read(self) -> Asked:
        prompt, special, write = self.prompt, self.special, partial(_write_tokens, self.with_pieces)
        return self.asked(Tokenize((prompt,), special), write, input="prompt")


def _write_text(result: DetokenizeResult, _envelope: Envelope) -> JsonValue:
    return {"prompt": result.texts[0], "content": result.texts[0]}


class VllmDetokenizeRequest(DetokenizeRequest):
    """The body of `/detokenize`, of llama.cpp too. The returned text includes special tokens."""

    schema_name = "DetokenizeRequest"
    responses = (
        Component(
            "DetokenizeResponse",
            {"prompt": str, "content": json_schema.described(str, "The same, for clients of llama.cpp.")},
        ),
    )

    def read(self) -> Asked:
        return self.asked(Detokenize((self.tokens,), skip_special=False), _write_text)


ROUTES = (
    InferenceRoute("score", ("/score", "/v1/score"), "Score pairs, in their order", (ScoreRequest,)),
    InferenceRoute("classify", ("/classify", "/v1/classify"), "Classify texts", (ClassifyRequest,)),
    InferenceRoute("tokenize", ("/tokenize", "/v1/tokenize"), "Tokens of texts", (TokenizeRequest,)),
    InferenceRoute("detokenize", ("/detokenize",), "Text of token ids", (VllmDetokenizeRequest,)),
)
