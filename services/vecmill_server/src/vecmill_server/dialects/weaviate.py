"""`/vectorize` of Weaviate's container multi2vec-clip. The rerank of Weaviate is in `other_rerankers`.

Source: Weaviate's module multi2vec-clip and its container. The module sends no name of a model and no key,
and null for a list without items.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from vecmill.errors import items_renamed
from vecmill.mill import Mill
from vecmill.requests import Caller, Embed, EmbedPictures, Picture
from vecmill.results import EmbedResult
from vecmill.values.aliases import JsonValue
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects import fields
from vecmill_server.dialects.dialect import (
    SENTENCE_STYLE,
    Asked,
    CompositeRequest,
    Envelope,
    InferenceBody,
    InferenceRoute,
)
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.picture_fields import PICTURES, request_for, to_pictures
from vecmill_server.dialects.truncated_inputs import with_truncated


@dataclass(frozen=True, slots=True)
class Vectorize(CompositeRequest[EmbedResult]):
    """The texts of `/vectorize` and then its pictures, which are embedded in one request."""

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.EMBED,)

    inputs: tuple[str | Picture, ...]
    text_count: int

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each text, and of bytes of each picture."""
        return list(map(len, self.inputs))

    @property
    def parts(self) -> tuple[Embed | EmbedPictures]:
        """The request for all of them."""
        return (request_for(self.inputs, options=self.options),)

    async def run(self, mill: Mill, caller: Caller) -> EmbedResult:
        """Return the embeddings. Raises the same errors as `Mill.run`."""
        count, (request,) = self.text_count, self.parts
        with items_renamed(lambda item: f"texts[{item}]" if item < count else f"images[{item - count}]"):
            return await mill.answer(request, caller)


def _read_list(body: RequestBody, name: str) -> list[JsonValue]:
    value = body.json.get(name)
    return [] if value in (None, []) else fields.to_items(value, name, "a list")


def _read_texts(body: RequestBody) -> tuple[str, ...]:
    return tuple(
        fields.to_string(item, f"texts[{index}]") for index, item in enumerate(_read_list(body, "texts"))
    )


def _read_images(body: RequestBody) -> tuple[Picture, ...]:
    found = _read_list(body, "images")
    return to_pictures(found, "images") if found else ()


def _write(count: int, result: EmbedResult, _envelope: Envelope) -> JsonValue:
    rows = result.embeddings
    return {"textVectors": rows[:count], "imageVectors": rows[count:]}


class WeaviateVectorizeRequest(InferenceBody):
    """The body of `/vectorize`: `texts`, `images`, or both. Each gets an embedding of its own."""

    texts = Field(
        {"texts": json_schema.nullable({"type": "array", "items": json_schema.STRING})},
        _read_texts,
    )
    images = Field(
        {"images": json_schema.of_the_model(json_schema.nullable(PICTURES), "Pictures, as base64.")},
        _read_images,
    )
    style = SENTENCE_STYLE
    rules = json_schema.all_of(
        json_schema.any_of(
            {"required": ["texts"], "properties": {"texts": json_schema.TEXTS}},
            {"required": ["images"], "properties": {"images": {"type": "array", "minItems": 1}}},
        )
    )
    responses = (
        Component(
            "WeaviateVectorizeResponse", with_truncated({"textVectors": [[float]], "imageVectors": [[float]]})
        ),
    )

    def read(self) -> Asked:
        texts, images = self.texts, self.images
        if not texts and not images:
            raise fields.invalid("texts", "or `images` is required: a list with at least one item.")
        return self.asked(Vectorize((*texts, *images), len(texts)), partial(_write, len(texts)))


ROUTES = (
    InferenceRoute(
        "embeddings", ("/vectorize",), "Embed texts and pictures, as Weaviate", (WeaviateVectorizeRequest,)
    ),
)
