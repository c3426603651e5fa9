"""The bodies of vLLM's `/score` and `/classify`, and of Infinity's `/classify`.

A body of `/classify` with the key `raw_scores` comes from an Infinity client. Source: vLLM's protocol classes
and its examples.
"""

from typing import Any

from vecmill.requests import Classify, Rerank
from vecmill.results import ClassifyResult, RerankResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.dialect import Asked, Envelope, Marks
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.known_fields import InputBody, TemplatedBody
from vecmill_server.dialects.response_parts import LABEL, describe_envelope, write_labels

# The keys by which bodies of `/classify` with labels of their own are known (`label_bodies`).
CANDIDATES, JINA_LABELS = "candidate_labels", "labels"
OF_CANDIDATES = Marks((CANDIDATES,), none_of=("inputs",))
OF_JINA = Marks((JINA_LABELS,), none_of=("inputs", CANDIDATES))
OF_HUGGING_FACE = Marks(("inputs",), none_of=("input",))

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


def _write_scores(result: RerankResult, envelope: Envelope) -> JsonValue:
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(result.scores)]
    return envelope.around("list", "score", result.token_count, data=data)


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


VLLM_LABELS = describe_list(
    "ClassifyResponse", {"index": int, "label": str, "probs": [float], "num_classes": int}
)


def write_classified(result: ClassifyResult, envelope: Envelope) -> JsonValue:
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
    return envelope.around("list", "classify", result.token_count, data=data)


def _write_as_infinity(result: ClassifyResult, envelope: Envelope) -> JsonValue:
    return envelope.around("classify", "classify", result.token_count, data=write_labels(result))


class ClassifyRequest(InputBody):
    """The body of `/classify`. If it has `raw_scores`, the response has Infinity's shape."""

    marks = Marks(after=(OF_CANDIDATES, OF_JINA, OF_HUGGING_FACE))
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
        absent=False,
    )
    options = text_fields.TRUNCATION_OPTIONS
    responses = (
        VLLM_LABELS,
        Component("InfinityClassifyResponse", describe_envelope("classify", data=[[LABEL]])),
    )

    def read(self) -> Asked:
        write = _write_as_infinity if "raw_scores" in self.json else write_classified
        return self.asked(Classify(self.inputs, self.raw_scores, options=self.options), write)
