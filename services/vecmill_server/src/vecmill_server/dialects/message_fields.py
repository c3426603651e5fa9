"""vLLM's `messages` in place of `input`: one message of a user, whose content is a text or a picture.

vLLM makes a prompt of the messages by a chat template. Its templates for CLIP and SigLIP give the content
alone, which is what is embedded here, by models of texts and pictures only. Other models have templates that
would change their embeddings. Source: vLLM's examples of pooling models, and its protocol classes.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from vecmill.errors import fields_renamed
from vecmill.mill import Mill
from vecmill.requests import Caller, EmbedPictures, Picture
from vecmill.results import EmbedResult
from vecmill.values.aliases import JsonValue
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.dialects import fields
from vecmill_server.dialects.dialect import CompositeRequest
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.known_fields import PICTURE_SETTINGS
from vecmill_server.dialects.picture_fields import (
    CONTENT,
    Inputs,
    describe_for_model,
    read_inputs,
    to_content,
)

MESSAGES = "messages"
_ONE_MESSAGE = 'must be one message, {"role": "user", "content": ...}: this server has no chat templates.'
_AS_THE_MODEL_SAYS = "is not applied: pictures are prepared as the model says."
_MESSAGE = json_schema.an_object(
    ("role", "content"), {"role": json_schema.word("user"), "content": json_schema.any_of(str, CONTENT)}
)


def _to_message(value: JsonValue, field: str) -> Picture | str:
    messages = fields.to_items(value, field, "a list of messages")
    message = messages[0]
    if len(messages) > 1 or not isinstance(message, dict) or message.get("role") != "user":
        raise fields.invalid(field, _ONE_MESSAGE)
    content, place = message.get("content"), f"{field}[0].content"
    return content if isinstance(content, str) else to_content(content, place)


@dataclass(frozen=True, slots=True)
class EmbedMessage(CompositeRequest[EmbedResult]):
    """The embedding of a message: that of its text or picture, by a model of both."""

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.EMBED,)

    content: EmbedPictures

    @property
    def sizes(self) -> list[int]:
        """The number of characters of the text, or of bytes of the picture."""
        return self.content.sizes

    @property
    def parts(self) -> tuple[EmbedPictures]:
        """The request for the embedding."""
        return (self.content,)

    async def run(self, mill: Mill, caller: Caller) -> EmbedResult:
        """Return the embedding. Raises the errors of `Mill.run`, and `InvalidRequest` for other models."""
        if mill.description.pictures is None and not self.content.pictures:
            raise fields.invalid(MESSAGES, "are not embedded: send the text itself as `input`.")
        with fields_renamed(input=MESSAGES):
            return await mill.answer(self.content, caller)


def has_messages(body: RequestBody) -> bool:
    """Return whether a body has `messages` in place of `input`. Raises `InvalidRequest` if it has both."""
    if body.json.get(MESSAGES) is None:
        return False
    if body.json.get("input") is not None:
        raise fields.invalid(MESSAGES, "stand in place of `input`: send one of them.")
    return True


def _read_messages(body: RequestBody) -> Inputs:
    if not has_messages(body):
        return read_inputs(body, "input", has_modality=True)
    return (_to_message(body.json[MESSAGES], MESSAGES),)


INPUT_OR_MESSAGES: Field[Inputs] = Field(
    {
        "input": describe_for_model,
        MESSAGES: json_schema.of_the_model(
            {"type": "array", "nullable": True, "minItems": 1, "maxItems": 1, "items": _MESSAGE},
            "In place of `input`, for models of texts and pictures.",
        ),
    },
    partial(read_inputs, name="input", has_modality=True, otherwise=_read_messages),
)
NEEDS_INPUT = json_schema.all_of(
    json_schema.not_both("prompt", "prompt_name"),
    json_schema.any_of(
        {"required": ["input"], "not": {"required": [MESSAGES], "properties": {MESSAGES: {"type": "array"}}}},
        {"required": [MESSAGES], "properties": {MESSAGES: {"type": "array"}}, "not": {"required": ["input"]}},
    ),
)


def refused_setting(name: str) -> Field[None]:
    """Return the field of one of `PICTURE_SETTINGS` for a body that has pictures alone."""
    return fields.refused(name, f"`{name}` {_AS_THE_MODEL_SAYS}", "Pictures are prepared as the model says.")


def refuse_picture_settings(body: RequestBody) -> None:
    """Raise `InvalidRequest` for vLLM's settings of how pictures are prepared."""
    for name in PICTURE_SETTINGS:
        if body.json.get(name):
            raise fields.invalid(name, _AS_THE_MODEL_SAYS)
