"""The bodies of `/predict`, `/embed_sparse` and `/embed_all`, and their answers, as TEI has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.types import (
    ClassifyResult,
    ClassifyTokensResult,
    Entity,
    JsonValue,
    MultiVectorResult,
    SparseResult,
    TextOrPair,
)
from vecmill_server.wire.documents import (
    decode_object,
    encode_json,
    read_flag,
    read_raw_scores,
    read_string,
    read_text,
    read_texts,
)

INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class PredictCall:
    """The body of `/predict`. What a list of strings is depends on the model: one pair, or several texts.

    `aggregate` is for classifiers of tokens.
    """

    model: str | None
    inputs: str | tuple[JsonValue, ...]
    raw_scores: bool
    truncate: bool
    aggregate: bool

    def texts_or_pairs(self) -> tuple[tuple[TextOrPair, ...], bool]:
        """The inputs of a classifier of texts; whether they are a batch. Raises `InvalidRequest`."""
        if isinstance(self.inputs, str):
            return (self.inputs,), False
        if isinstance(self.inputs[0], str):
            return (_read_text_or_pair(self.inputs, INPUTS),), False
        items = tuple(
            _read_text_or_pair(item, f"{INPUTS}[{index}]") for index, item in enumerate(self.inputs)
        )
        return items, True

    def texts(self) -> tuple[tuple[str, ...], bool]:
        """The inputs of a classifier of tokens; whether they are a batch. Raises `InvalidRequest`."""
        if self.raw_scores:
            raise InvalidRequest("`raw_scores` is not for models that classify tokens.", field="raw_scores")
        if isinstance(self.inputs, str):
            return (self.inputs,), False
        # A batch as pairs would have it: each text in a list of its own.
        items = [item[0] if isinstance(item, list) and len(item) == 1 else item for item in self.inputs]
        return tuple(read_text(item, f"{INPUTS}[{index}]") for index, item in enumerate(items)), True


@dataclass(frozen=True, slots=True)
class TextsCall:
    """The body of `/embed_sparse` and `/embed_all`."""

    model: str | None
    inputs: tuple[str, ...]
    truncate: bool
    prompt_name: str | None


def decode_predict(body: bytes) -> PredictCall:
    """Read the body of `/predict`. Raises `InvalidJson` or `InvalidRequest`."""
    document = decode_object(body)
    parameters = document.get("parameters")
    settings = {**(parameters if isinstance(parameters, dict) else {}), **document}
    return PredictCall(
        model=read_string(document, "model"),
        inputs=_read_inputs(document.get(INPUTS)),
        raw_scores=read_raw_scores(document),
        truncate=read_flag(document, "truncate", default=True),
        aggregate=_read_aggregation(settings),
    )


def decode_texts(body: bytes) -> TextsCall:
    """Read the body of `/embed_sparse` or `/embed_all`. Raises `InvalidJson` or `InvalidRequest`."""
    document = decode_object(body)
    return TextsCall(
        model=read_string(document, "model"),
        inputs=read_texts(document, INPUTS)[0],
        truncate=read_flag(document, "truncate", default=True),
        prompt_name=read_string(document, "prompt_name"),
    )


def encode_labels(result: ClassifyResult, *, is_batch: bool) -> bytes:
    """All labels of each input, the best first."""
    answers = [
        [{"score": score, "label": label} for label, score in result.ranked(index)]
        for index in range(len(result.scores))
    ]
    return encode_json(answers if is_batch else answers[0])


def encode_entities(result: ClassifyTokensResult, *, is_batch: bool) -> bytes:
    """The entities of each text, as a token-classification pipeline of transformers gives them."""
    answers = [[_entity(entity) for entity in entities] for entities in result.entities]
    return encode_json(answers if is_batch else answers[0])


def encode_sparse(result: SparseResult) -> bytes:
    """Each row as its columns and their values."""
    return encode_json(
        [
            [
                {"index": index, "value": value}
                for index, value in zip(row.columns.tolist(), row.values.tolist(), strict=True)
            ]
            for row in result.rows
        ]
    )


def encode_all(result: MultiVectorResult) -> bytes:
    """For each text, a row for each token."""
    return encode_json([list(rows) for rows in result.rows])


def _entity(entity: Entity) -> dict[str, Any]:
    common = {"score": entity.score, "word": entity.word, "start": entity.start, "end": entity.end}
    if entity.index is None:
        return {"entity_group": entity.label, **common}
    return {"entity": entity.label, "index": entity.index, **common}


def _read_inputs(value: JsonValue) -> str | tuple[JsonValue, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return tuple(value)
    raise InvalidRequest(
        "`inputs` is required: a string, a pair of strings, or a list of these.", field=INPUTS
    )


def _read_text_or_pair(item: JsonValue, field: str) -> TextOrPair:
    if isinstance(item, str):
        return item
    if not isinstance(item, list | tuple) or len(item) not in (1, 2):
        raise InvalidRequest(
            f"`{field}` must be a string, or a list of one string or two; a batch is a list of such lists.",
            field=field,
        )
    texts = [read_text(text, f"{field}[{index}]") for index, text in enumerate(item)]
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def _read_aggregation(settings: Mapping[str, Any]) -> bool:
    value = settings.get("aggregation_strategy")
    if value is None:
        return True
    if value not in ("none", "simple"):
        raise InvalidRequest(
            '`aggregation_strategy` must be "none" or "simple".', field="aggregation_strategy"
        )
    return bool(value == "simple")
