"""Zero-shot classification: bodies with the labels themselves, for models that embed.

    `/classify`           `candidate_labels` beside vLLM's `input`; or Jina's `labels`
    `/`, `/classify`      Hugging Face's `{"inputs": ..., "parameters": {"candidate_labels": [...]}}`

Source: huggingface_hub (`zero_shot_classification` and `zero_shot_image_classification`), huggingface.js, and
Jina's API reference. Hugging Face's clients send a text or the base64 of a picture in the same field.
"""

from typing import Any, ClassVar

from vecmill.requests import ClassifyByLabels, Picture
from vecmill.results import ClassifyResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects import fields, picture_fields
from vecmill_server.dialects.dialect import Asked, Envelope, Marks
from vecmill_server.dialects.fields import Field, Json, RequestBody
from vecmill_server.dialects.known_fields import InputBody
from vecmill_server.dialects.message_fields import refuse_picture_settings
from vecmill_server.dialects.parameters import INPUTS, PARAMETERS
from vecmill_server.dialects.picture_fields import PICTURE_OBJECT, looks_like_picture, to_picture
from vecmill_server.dialects.response_parts import LABEL, write_labels
from vecmill_server.dialects.score_and_classify_bodies import (
    CANDIDATES,
    JINA_LABELS,
    OF_CANDIDATES,
    OF_HUGGING_FACE,
    OF_JINA,
    VLLM_LABELS,
    write_classified,
)
from vecmill_server.dialects.tei_bodies import TeiBody
from vecmill_server.dialects.text_fields import RAW_SCORES, TEXT_OPTIONS, TRUNCATION_OPTIONS, is_picture
from vecmill_server.dialects.truncated_inputs import with_truncated

# Jina's answer repeats the labels for each input, with so many characters around each.
MOST_LABEL_CHARACTERS, _ENTRY = 4_000_000, 40

_CANDIDATES = fields.optional(
    (CANDIDATES,), json_schema.TEXTS, fields.to_text_list, "The labels to choose from."
)
_TEMPLATE = fields.optional(
    ("hypothesis_template",),
    {**json_schema.OPTIONAL_STRING, "pattern": r"\{\}"},
    fields.to_string,
    "The text for a label, with {} in its place. By default `This is a photo of {}.` for pictures, and "
    "`This example is {}.` for texts.",
)


def asks_for_labels(json: Json) -> bool:
    """Return whether a body has labels to choose from, also where Hugging Face's clients put them."""
    parameters = json.get(PARAMETERS)
    return CANDIDATES in json or (isinstance(parameters, dict) and CANDIDATES in parameters)


def _read_inputs(body: RequestBody) -> tuple[Picture | str, ...]:
    inputs = picture_fields.read_inputs(body, "input", has_modality=True)
    found = tuple(each for each in inputs if not isinstance(each, tuple))
    if len(found) < len(inputs):
        raise fields.invalid("input", "must be texts or pictures, not token ids.")
    return found


class ClassifyByLabelsRequest(InputBody):
    """The body of `/classify` with `candidate_labels`, which models that embed answer."""

    marks: ClassVar[Marks] = OF_CANDIDATES
    modality = picture_fields.MODALITY
    inputs = Field(
        {"input": picture_fields.describe_for_model},
        _read_inputs,
        ("input",),
    )
    labels: ClassVar[Field[Any]] = fields.required(
        CANDIDATES, json_schema.TEXTS, fields.to_text_list, "a list of strings", "The labels to choose from."
    )
    template = _TEMPLATE
    raw_scores = RAW_SCORES
    options = TEXT_OPTIONS
    rules = json_schema.not_both("prompt", "prompt_name")
    responses: ClassVar[tuple[Any, ...]] = (VLLM_LABELS,)
    labels_name: ClassVar[str] = CANDIDATES

    def read(self) -> Asked:
        request = ClassifyByLabels(
            self.inputs, self.labels, self.template, self.raw_scores, options=self.options
        )
        if request.pictures:
            refuse_picture_settings(self)
        names = {"labels": self.labels_name, "template": "hypothesis_template"}
        return self.asked(request, self.write(request), **names)

    def write(self, request: ClassifyByLabels) -> Any:
        """Return what writes the result."""
        return write_classified


def _write_jina(result: ClassifyResult, envelope: Envelope) -> JsonValue:
    data = [
        {
            "object": "classification",
            "index": index,
            "prediction": labels[0]["label"],
            "score": labels[0]["score"],
            "predictions": labels,
        }
        for index, labels in enumerate(write_labels(result))
    ]
    return {"model": envelope.model, "data": data, "usage": {"total_tokens": result.token_count}}


class JinaClassifyRequest(ClassifyByLabelsRequest):
    """The body of Jina's `/v1/classify`, known by `labels`."""

    marks = OF_JINA
    labels = fields.required(
        JINA_LABELS, json_schema.TEXTS, fields.to_text_list, "a list of strings", "The labels to choose from."
    )
    labels_name = JINA_LABELS
    responses = (
        Component(
            "JinaClassifyResponse",
            with_truncated(
                {
                    "model": str,
                    "data": [
                        {
                            "object": "classification",
                            "index": int,
                            "prediction": str,
                            "score": float,
                            "predictions": [LABEL],
                        }
                    ],
                    "usage": {"total_tokens": int},
                }
            ),
        ),
    )

    def write(self, request: ClassifyByLabels) -> Any:
        if len(request.inputs) * sum(map(len, request.labels)) > MOST_LABEL_CHARACTERS:
            raise fields.invalid(
                JINA_LABELS,
                "are too long for so many inputs, since the answer repeats them. Send it in parts.",
            )
        return _write_jina


def _read_input(body: RequestBody) -> Picture | str:
    value = body.json.get(INPUTS)
    if is_picture(value):
        return to_picture(value, INPUTS)
    if not isinstance(value, str):
        raise fields.invalid(INPUTS, "is required: a text, or a picture as base64. Send one in each request.")
    is_url = value.startswith(("http://", "https://"))
    return to_picture(value, INPUTS) if is_url or looks_like_picture(value) else value


def _write_best_first(result: ClassifyResult, _envelope: Envelope) -> JsonValue:
    return write_labels(result)[0]


class ZeroShotRequest(TeiBody):
    """The body of Hugging Face's zero-shot classification of a text or a picture."""

    marks = OF_HUGGING_FACE
    inputs = Field(
        {
            INPUTS: json_schema.of_the_model(
                json_schema.any_of(str, PICTURE_OBJECT),
                "A text or a picture: base64 that begins as a PNG, JPEG, GIF or WebP file, a data URI, or an "
                "object.",
            )
        },
        _read_input,
        (INPUTS,),
    )
    labels = _CANDIDATES
    template = _TEMPLATE
    multi_label = fields.fixed(
        "multi_label",
        json_schema.NEVER,
        lambda value, name: not fields.to_flag(value, name),
        "`multi_label` must be false: whether labels compete depends on the model.",
        "Whether labels compete depends on the model.",
    )
    options = TRUNCATION_OPTIONS
    rules = json_schema.all_of(
        json_schema.any_of(
            {"required": [CANDIDATES]},
            {
                "required": [PARAMETERS],
                "properties": {
                    PARAMETERS: json_schema.an_object((CANDIDATES,), {CANDIDATES: json_schema.TEXTS})
                },
            },
        )
    )
    responses = (Component("ZeroShotResponse", [LABEL]),)

    def read(self) -> Asked:
        labels = self.labels
        if labels is None:
            raise fields.invalid(CANDIDATES, "is required: a list of strings, in `parameters`.")
        request = ClassifyByLabels((self.inputs,), labels, self.template, options=self.options)
        names = {"labels": CANDIDATES, "template": "hypothesis_template", "input": INPUTS}
        return self.asked(request, _write_best_first, **names)
