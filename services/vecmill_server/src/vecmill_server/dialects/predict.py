"""TEI's `/predict`, which returns labels of texts, pairs or tokens, depending on the model.

Source: TEI's router; for tokens, the pipeline of transformers. A body with `parameters` comes from Hugging
Face's client, which expects the pipeline's response format.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from vecmill.errors import InvalidRequest
from vecmill.mill import Mill
from vecmill.requests import Caller, Classify, ClassifyTokens, TextOrPair
from vecmill.results import ClassifyResult, ClassifyTokensResult, Entity
from vecmill.values.aliases import JsonValue
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects import fields
from vecmill_server.dialects.dialect import Asked, CompositeRequest, Envelope, InferenceRoute
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.response_parts import LABEL, write_labels
from vecmill_server.dialects.tei import INPUTS, PARAMETERS, TeiBody
from vecmill_server.dialects.text_fields import RAW_SCORES, TRUNCATION_OPTIONS


@dataclass(frozen=True, slots=True)
class Predict(CompositeRequest[ClassifyResult | ClassifyTokensResult]):
    """The inputs of `/predict`. Their meaning depends on the model: two strings are a pair, or two texts.

    `aggregate` is for token classifiers.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY, Task.CLASSIFY_TOKENS, Task.RERANK)

    inputs: str | tuple[JsonValue, ...]
    raw_scores: bool
    aggregate: bool

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each input; 0 for inputs that are not texts."""
        items = (self.inputs,) if isinstance(self.inputs, str) else self.inputs
        return [_count_characters(item) for item in items]

    async def run(self, mill: Mill, caller: Caller) -> ClassifyResult | ClassifyTokensResult:
        """Return the result. Raises the same errors as `Mill.run`."""
        options = self.options
        if mill.description.task is Task.CLASSIFY_TOKENS:
            return await mill.answer(ClassifyTokens(self._texts(), self.aggregate, options=options), caller)
        return await mill.answer(Classify(self._texts_or_pairs(), self.raw_scores, options=options), caller)

    def is_batch(self, *, of_tokens: bool) -> bool:
        """Return whether the inputs are a batch, for a classifier of tokens or of texts."""
        return not isinstance(self.inputs, str) and (of_tokens or not isinstance(self.inputs[0], str))

    def _texts_or_pairs(self) -> tuple[TextOrPair, ...]:
        """Return the inputs of a text classifier. Raises `InvalidRequest`."""
        if isinstance(self.inputs, str):
            return (self.inputs,)
        if not self.is_batch(of_tokens=False):
            return (_to_text_or_pair(self.inputs, INPUTS),)
        return tuple(_to_text_or_pair(item, f"{INPUTS}[{index}]") for index, item in enumerate(self.inputs))

    def _texts(self) -> tuple[str, ...]:
        """Return the inputs of a token classifier. Raises `InvalidRequest`."""
        if self.raw_scores:
            raise fields.invalid("raw_scores", "is not for models that classify tokens.")
        if isinstance(self.inputs, str):
            return (self.inputs,)
        # A batch as for pairs: each text in a list of its own.
        items = [item[0] if isinstance(item, list) and len(item) == 1 else item for item in self.inputs]
        return tuple(fields.to_string(item, f"{INPUTS}[{index}]") for index, item in enumerate(items))


def _to_text_or_pair(item: JsonValue, field: str) -> TextOrPair:
    if isinstance(item, str):
        return item
    if not isinstance(item, list | tuple) or len(item) not in (1, 2):
        raise fields.invalid(
            field, "must be a string, or a list of one string or two; a batch is a list of such lists."
        )
    texts = [fields.to_string(text, f"{field}[{index}]") for index, text in enumerate(item)]
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def _count_characters(item: JsonValue) -> int:
    if isinstance(item, str):
        return len(item)
    return sum(len(part) for part in item if isinstance(part, str)) if isinstance(item, list) else 0


_PAIR = {"type": "array", "minItems": 1, "maxItems": 2, "items": json_schema.STRING}
_PAIRS = {"type": "array", "minItems": 1, "items": json_schema.any_of(str, _PAIR)}


def _read_inputs(body: RequestBody) -> str | tuple[JsonValue, ...]:
    value = body.json.get(INPUTS)
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return tuple(value)
    raise InvalidRequest(
        "`inputs` is required: a string, a pair of strings, or a list of these.", field=INPUTS
    )


def _to_no_activation(value: JsonValue, field: str) -> bool:
    if fields.to_string(value, field) == "none":
        return True
    raise fields.invalid(
        field, "must be none, or absent: the activation function is the model's own, or none."
    )


_OF_TEXTS = "Not for models that classify tokens."
_RAW = Field(
    {
        name: json_schema.of_the_model(schema, f"{schema['description']} {_OF_TEXTS}")
        for name, schema in RAW_SCORES.properties.items()
    },
    RAW_SCORES.read,
)
_NO_ACTIVATION = fields.optional(
    ("function_to_apply",),
    json_schema.one_of_words(("none",)),
    _to_no_activation,
    f"Leaves out the activation function, as `raw_scores` does. {_OF_TEXTS}",
    depends_on_model=True,
)


def _read_raw_scores(body: RequestBody) -> bool:
    is_raw, has_no_activation = _RAW.read(body), _NO_ACTIVATION.read(body)
    return is_raw or bool(has_no_activation)


_ENTITY = Component(
    "Entity",
    json_schema.an_object(
        ("score", "word", "start", "end"),
        {
            "score": float,
            "word": str,
            "start": int,
            "end": int,
            "entity": str,
            "entity_group": str,
            "index": int,
        },
    ),
)
_ANSWER = json_schema.any_of([LABEL], [_ENTITY])


def _write(
    request: Predict,
    limit: int | None,
    is_pipeline: bool,
    result: ClassifyResult | ClassifyTokensResult,
    _envelope: Envelope,
) -> JsonValue:
    """Write the entities of each text, or at most `limit` labels of each text, the best first."""
    answers: list[Any]
    if isinstance(result, ClassifyTokensResult):
        answers = [[_write_entity(entity) for entity in entities] for entities in result.entities]
    else:
        # Of equal scores, TEI has the last label first, and a pipeline the first.
        answers = [labels[:limit] for labels in write_labels(result, last_first=not is_pipeline)]
        if is_pipeline:  # the client takes the first item of a list, also for a single text
            return answers
    return answers if request.is_batch(of_tokens=isinstance(result, ClassifyTokensResult)) else answers[0]


def _write_entity(entity: Entity) -> dict[str, Any]:
    written = {"score": entity.score, "word": entity.word, "start": entity.start, "end": entity.end}
    if entity.index is None:
        return {"entity_group": entity.label, **written}
    return {"entity": entity.label, "index": entity.index, **written}


class PredictRequest(TeiBody):
    """The body of `/predict`."""

    inputs = Field(
        {
            "inputs": json_schema.of_the_model(
                json_schema.any_of(str, _PAIR, _PAIRS),
                "A text, a pair (a list of two) or a list of such lists; for tokens a list of texts.",
            )
        },
        _read_inputs,
        (INPUTS,),
    )
    raw_scores = fields.combined(_RAW, _NO_ACTIVATION, read=_read_raw_scores, absent=False)
    options = TRUNCATION_OPTIONS
    aggregation = fields.choice(
        "aggregation_strategy",
        choices=("none", "simple"),
        note="For tokens: an entry for each token, or for each group of tokens.",
    )
    top_k = fields.count("top_k", note="The number of labels of a text, the best first; 0 returns all.")
    ignore_labels = fields.fixed(
        "ignore_labels",
        {"type": "array", "nullable": True, "items": json_schema.STRING, "enum": [["O"], None]},
        lambda value, _name: value == ["O"],
        '`ignore_labels` must be ["O"]: all entities are returned, and other tokens are left out.',
        "Tokens outside of entities are left out.",
    )
    stride = fields.refused(
        "stride",
        "`stride` is not supported: long texts are cut, not split.",
        "Long texts are cut, not split.",
    )
    responses = (Component("PredictResponse", json_schema.any_of(_ANSWER, [_ANSWER])),)

    def read(self) -> Asked:
        inputs, raw_scores, options = self.inputs, self.raw_scores, self.options
        request = Predict(inputs, raw_scores, self.aggregation != "none", options=options)
        return self.asked(
            request, partial(_write, request, self.top_k, PARAMETERS in self.json), input=INPUTS
        )


ROUTES = (InferenceRoute("predict", ("/predict",), "Classify texts, pairs or tokens", (PredictRequest,)),)
