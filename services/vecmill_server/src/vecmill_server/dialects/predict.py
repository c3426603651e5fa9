"""TEI's `/predict`: labels of texts, of pairs, or of tokens, whatever the model has.

Source: its router; for tokens the pipeline of transformers. Hugging Face's client, whose bodies always have
`parameters`, asks as that pipeline is asked, and gets its shape.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from vecmill.errors import InvalidRequest
from vecmill.mill import Mill
from vecmill.models import Task
from vecmill.reading import Reading
from vecmill.types import ClassifyResult, ClassifyTokensResult, Entity, JsonValue, TextOrPair, Timings
from vecmill_server.calls import ClassifyCall, EntitiesCall
from vecmill_server.dialects import Asked, DialectOptions, Document
from vecmill_server.dialects.fields import read_choice, read_truncation, write_labels
from vecmill_server.dialects.tei import INPUTS, PARAMETERS, in_tei
from vecmill_server.documents import Envelope, read_count, read_raw_scores, read_string, read_text


def read_predict(document: Document, options: DialectOptions) -> Asked:
    """`/predict`: labels of texts, of pairs, or of tokens, whatever the model has."""
    call = PredictCall(
        model=read_string(document, "model"),
        inputs=_read_predict_inputs(document.get(INPUTS)),
        raw_scores=read_raw_scores(document) or _leaves_activation_out(document),
        reading=Reading(truncation=read_truncation(document)),
        aggregate=read_choice(document, "aggregation_strategy", ("none", "simple")) != "none",
    )
    limit = read_count(document, "top_k")
    return Asked(call, partial(_write_predicted, limit, PARAMETERS in document))


@dataclass(frozen=True, slots=True)
class Predicted:
    """What `/predict` gives: labels of texts, or entities; whether the inputs were a batch."""

    labels: ClassifyResult | None
    entities: ClassifyTokensResult | None
    is_batch: bool

    @property
    def _result(self) -> Any:
        return self.labels if self.entities is None else self.entities

    @property
    def token_count(self) -> int:
        """Tokens of the whole request."""
        count: int = self._result.token_count
        return count

    @property
    def timings(self) -> Timings:
        """Where the time went."""
        timings: Timings = self._result.timings
        return timings


@dataclass(frozen=True, slots=True)
class PredictCall:
    """The body of `/predict`. What a list of strings is depends on the model: one pair, or several texts.

    `aggregate` is for classifiers of tokens.
    """

    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY, Task.CLASSIFY_TOKENS, Task.RERANK)

    model: str | None
    inputs: str | tuple[JsonValue, ...]
    raw_scores: bool
    reading: Reading
    aggregate: bool

    @property
    def sizes(self) -> list[int]:
        """The characters of each input; 0 for what is none."""
        items = (self.inputs,) if isinstance(self.inputs, str) else self.inputs
        return [_count_characters(item) for item in items]

    async def run(self, mill: Mill, timeout_s: float | None) -> Predicted:
        """Ask the model. Raises as `Mill.submit` does."""
        if mill.description.task is Task.CLASSIFY_TOKENS:
            texts, is_batch = self._texts()
            entities = EntitiesCall(self.model, texts, self.reading, INPUTS, self.aggregate)
            return Predicted(None, await entities.run(mill, timeout_s), is_batch)
        inputs, is_batch = self._texts_or_pairs()
        labels = ClassifyCall(self.model, inputs, self.raw_scores, self.reading, INPUTS)
        return Predicted(await labels.run(mill, timeout_s), None, is_batch)

    def _texts_or_pairs(self) -> tuple[tuple[TextOrPair, ...], bool]:
        """The inputs of a classifier of texts; whether they are a batch. Raises `InvalidRequest`."""
        if isinstance(self.inputs, str):
            return (self.inputs,), False
        if isinstance(self.inputs[0], str):
            return (_read_text_or_pair(self.inputs, INPUTS),), False
        items = tuple(
            _read_text_or_pair(item, f"{INPUTS}[{index}]") for index, item in enumerate(self.inputs)
        )
        return items, True

    def _texts(self) -> tuple[tuple[str, ...], bool]:
        """The inputs of a classifier of tokens; whether they are a batch. Raises `InvalidRequest`."""
        if self.raw_scores:
            raise InvalidRequest("`raw_scores` is not for models that classify tokens.", field="raw_scores")
        if isinstance(self.inputs, str):
            return (self.inputs,), False
        # A batch as pairs would have it: each text in a list of its own.
        items = [item[0] if isinstance(item, list) and len(item) == 1 else item for item in self.inputs]
        return tuple(read_text(item, f"{INPUTS}[{index}]") for index, item in enumerate(items)), True


def _leaves_activation_out(document: Document) -> bool:
    """Whether Hugging Face's client asks for that. Raises `InvalidRequest` for another activation."""
    name = "function_to_apply"
    value = read_string(document, name)
    if value not in (None, "none"):
        raise InvalidRequest(
            f"`{name}` must be none, or absent: scores are made by the model's own activation, or by none.",
            field=name,
        )
    return value is not None


def _read_predict_inputs(value: JsonValue) -> str | tuple[JsonValue, ...]:
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


def _count_characters(item: JsonValue) -> int:
    if isinstance(item, str):
        return len(item)
    return sum(len(part) for part in item if isinstance(part, str)) if isinstance(item, list) else 0


def _write_predicted(
    limit: int | None, is_pipeline: bool, result: Predicted, _envelope: Envelope
) -> JsonValue:
    """`limit` is how many labels a text gets, the best first."""
    if result.entities is not None:
        answers = [[_entity(entity) for entity in entities] for entities in result.entities.entities]
    else:
        assert result.labels is not None
        answers = [labels[:limit] for labels in write_labels(result.labels)]
        if is_pipeline:  # its client takes the first of a list, also where it sent a single text
            return answers
    return answers if result.is_batch else answers[0]


def _entity(entity: Entity) -> dict[str, Any]:
    common = {"score": entity.score, "word": entity.word, "start": entity.start, "end": entity.end}
    if entity.index is None:
        return {"entity_group": entity.label, **common}
    return {"entity": entity.label, "index": entity.index, **common}


PREDICT = in_tei(read_predict)
