"""Pictures in the JSON of requests: a data URI, base64 alone, or a URL.

Source: the clients of Jina, `{"image": ...}`, and those of LangChain for it, `{"bytes": ...}`; OpenAI's and
vLLM's `{"image_url": {"url": ...}}`; Infinity's `modality`, by which plain strings are pictures.
"""

import base64
import binascii
from functools import partial

from vecmill.requests import Picture, PictureUrl, TextOrIds
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.base.picture_urls import WANTED
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.fields import Field, RequestBody

# The keys of an object for a picture, of which it has one.
KEYS = ("image", "bytes", "image_url")

_STRING = json_schema.of_the_model(
    json_schema.STRING, "A data URI, base64, or the URL of a picture if the server fetches from its host."
)
_URL_OBJECT = json_schema.an_object(("url",), {"url": _STRING})
PICTURE_OBJECT = Component(
    "PictureObject",
    {
        "anyOf": [
            json_schema.an_object(("image",), {"image": _STRING}),
            json_schema.an_object(("bytes",), {"bytes": _STRING}),
            json_schema.an_object(("image_url",), {"image_url": json_schema.any_of(_STRING, _URL_OBJECT)}),
        ]
    },
)


def to_picture(value: JsonValue, field: str) -> Picture:
    """Return the picture in a string, or in an object with one of `KEYS`. Raises `InvalidRequest`.

    A URL is a `PictureUrl`. Whether it may be fetched is checked for all requests by `InferenceBody.parse`,
    and it is fetched when its request has room (`Caller.fetch`).
    """
    if isinstance(value, dict):
        key = next(key for key in KEYS if key in value)
        inner, place = value[key], f"{field}.{key}"
        if isinstance(inner, dict) and "url" in inner:
            inner, place = inner["url"], f"{place}.url"
        return to_picture(inner, place) if isinstance(inner, str) else _refuse(place, f"must be {WANTED}.")
    text = fields.to_string(value, field)
    if text[:5].lower() == "data:":
        head, comma, text = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            return _refuse(field, f"must be {WANTED}.")
    elif text[:7].lower() == "http://" or text[:8].lower() == "https://":
        return PictureUrl(text, field)
    try:
        return Picture(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except (binascii.Error, ValueError):
        return _refuse(field, f"is no base64. Send {WANTED}.")


def _refuse(field: str, reason: str) -> Picture:
    raise fields.invalid(field, reason)


def _is_picture(item: JsonValue) -> bool:
    return isinstance(item, dict) and not item.keys().isdisjoint(KEYS)


def _reads_strings(body: RequestBody) -> bool:
    """Return whether plain strings are pictures. Raises `InvalidRequest` for another modality than these."""
    value = body.json.get("modality")
    if value is None:
        return False
    modality = fields.to_string(value, "modality")
    if modality not in ("text", "image"):
        raise fields.invalid("modality", "must be text or image: this server does not read audio.")
    return modality == "image"


MODALITY: Field[bool] = Field(
    {
        "modality": json_schema.of_the_model(
            json_schema.one_of_words(("text", "image")), "What the strings of `input` are: texts or pictures."
        )
    },
    _reads_strings,
    absent=False,
)


def _describe(settings: ServerSettings) -> Schema:
    texts = text_fields.describe_inputs(settings)
    mixed = {
        "type": "array",
        "minItems": 1,
        "items": json_schema.any_of(json_schema.STRING, text_fields.TEXT_OBJECT, PICTURE_OBJECT),
    }
    several = json_schema.described(json_schema.any_of(PICTURE_OBJECT, mixed), "Pictures, and texts beside.")
    return json_schema.described(
        json_schema.any_of(*texts["anyOf"], several), "A text or picture, or several."
    )


def _read(body: RequestBody, name: str) -> tuple[TextOrIds, ...] | tuple[Picture | str, ...]:
    value = body.json.get(name)
    has_modality = "modality" in body.json
    if isinstance(value, str) and not has_modality:
        return (value,)
    reads_strings = has_modality and _reads_strings(body)
    items = value if isinstance(value, list) else [value]
    if not reads_strings and not any(map(_is_picture, items)):
        return text_fields.read_inputs(body, name)
    return tuple(
        _to_input(item, f"{name}[{index}]" if isinstance(value, list) else name, reads_strings=reads_strings)
        for index, item in enumerate(items)
    )


def _to_input(item: JsonValue, field: str, *, reads_strings: bool) -> Picture | str:
    if _is_picture(item) or (reads_strings and isinstance(item, str)):
        return to_picture(item, field)
    if isinstance(item, dict) and isinstance(item.get("text"), str):
        return str(item["text"])
    if isinstance(item, list):
        raise fields.invalid(field, "is token ids beside a picture: send texts.")
    if isinstance(item, dict):
        raise fields.invalid(field, 'is an object without "text" or "image".')
    return fields.to_string(item, field)


def embed_inputs(name: str) -> Field[tuple[TextOrIds, ...] | tuple[Picture | str, ...]]:
    """Return the required inputs to embed, of which some or all may be pictures."""
    return Field({name: _describe}, partial(_read, name=name), (name,))
