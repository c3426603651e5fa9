"""Pictures in the JSON of requests: a data URI, base64, or a URL, alone or in an object that clients write.

    {"image": ...}                              Jina, Azure
    {"bytes": ...}, {"url": ...}                LangChain, for Jina
    {"image_url": {"url": ...}}                 OpenAI's messages, vLLM, Cohere
    {"image_base64": ...}, {"image_url": ...}   Voyage
    {"prompt_string": "<__media__>", "multimodal_data": [...]}      llama.cpp

With Infinity's `modality`, plain strings are pictures too. Cohere, Voyage and vLLM's messages have a list of
parts for each input. A picture with a text would be one embedding of both, which no model here gives.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from vecmill.errors import InvalidRequest
from vecmill.requests import Embed, EmbedPictures, Picture, PictureUrl, TextOptions, TextOrIds
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.base.picture_urls import WANTED
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.fields import Field, Json, RequestBody
from vecmill_server.dialects.text_fields import PICTURE_KEYS, is_picture

# Texts and token ids, or pictures and texts beside them.
Inputs = tuple[TextOrIds, ...] | tuple[Picture | str, ...]
_PICTURE_TYPES = frozenset((Picture, PictureUrl))

# What stands for a picture in a prompt of llama.cpp; its clients may learn the marker from /props.
MEDIA_MARKER = "<__media__>"
PROMPT, MEDIA = "prompt_string", "multimodal_data"
_MARKER = re.compile(r"<__media\w{0,64}__>")

_BOTH = (
    "stands beside a picture, and one embedding of both is not possible: models here embed a text or a "
    "picture. Send each as an input of its own."
)
_STRING = json_schema.of_the_model(
    json_schema.STRING, "A data URI, base64, or the URL of a picture if the server fetches from its host."
)
_URL_OBJECT = json_schema.an_object(("url",), {"url": _STRING})
PICTURE_OBJECT = Component(
    "PictureObject",
    {
        "anyOf": [
            json_schema.an_object(
                (key,),
                {
                    key: json_schema.any_of(_STRING, _URL_OBJECT) if key == "image_url" else _STRING,
                    "text": json_schema.described(json_schema.NOTHING, "Refused beside a picture."),
                },
            )
            for key in PICTURE_KEYS
        ]
    },
)
_PROMPT_OBJECT = Component(
    "PromptObject",
    json_schema.an_object(
        (PROMPT,), {PROMPT: str, MEDIA: {"type": "array", "maxItems": 1, "items": _STRING}}
    ),
)
CONTENT: Schema = {
    **json_schema.any_of(
        {"type": "array", "minItems": 1, "items": text_fields.TEXT_OBJECT},
        {"type": "array", "minItems": 1, "maxItems": 1, "items": PICTURE_OBJECT},
    ),
    "description": "One picture, or texts that are joined by line ends.",
}


def to_picture(value: JsonValue, field: str) -> Picture:
    """Return the picture in a string, or in an object with one of `PICTURE_KEYS`. Raises `InvalidRequest`.

    A URL is a `PictureUrl`. Whether it may be fetched is checked for all requests by `InferenceBody.parse`,
    and it is fetched when its request has room (`Caller.fetch`).
    """
    if isinstance(value, dict):
        return to_picture(*_open_object(value, field))
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


def _open_object(item: Json, field: str) -> tuple[str, str]:
    """Return the string of an object for a picture, and its field."""
    keys = [key for key in PICTURE_KEYS if item.get(key) is not None]
    if len(keys) != 1:
        _refuse(field, f"must have one of the keys {', '.join(PICTURE_KEYS)}.")
    if item.get("text") is not None:
        _refuse(f"{field}.text", _BOTH)
    inner, place = item[keys[0]], f"{field}.{keys[0]}"
    if isinstance(inner, dict) and "url" in inner:
        inner, place = inner["url"], f"{place}.url"
    if not isinstance(inner, str):
        _refuse(place, f"must be {WANTED}.")
    return inner, place


def _refuse(field: str, reason: str) -> Picture:
    raise fields.invalid(field, reason)


def to_content(value: JsonValue, field: str) -> Picture | str:
    """Return the input in a list of parts: its one picture, or its texts, joined by line ends.

    Raises `InvalidRequest`, also for a picture with a text.
    """
    parts = fields.to_items(value, field, "a list of parts")
    of_pictures = [index for index, part in enumerate(parts) if is_picture(part)]
    if not of_pictures:
        return "\n".join(_to_text(part, f"{field}[{index}]") for index, part in enumerate(parts))
    other = next((index for index in range(len(parts)) if index != of_pictures[0]), None)
    if other is not None and other in of_pictures:
        _refuse(f"{field}[{other}]", "is a second picture, and each input has one. Send it as another input.")
    if other is not None:
        _refuse(f"{field}[{other}]", _BOTH)
    return to_picture(parts[0], f"{field}[0]")


def to_contents(value: JsonValue, field: str) -> tuple[Picture | str, ...]:
    """Return the inputs of Cohere and Voyage: `{"content": [...]}` for each. Raises `InvalidRequest`."""
    return tuple(
        _to_content_of(item, f"{field}[{index}]")
        for index, item in enumerate(fields.to_items(value, field, "a list of inputs"))
    )


def _to_content_of(item: JsonValue, field: str) -> Picture | str:
    content = item.get("content") if isinstance(item, dict) else None
    if not isinstance(content, list) or not content:
        raise InvalidRequest(f"`{field}.content` must be a list of at least one part.", field=field)
    return to_content(content, f"{field}.content")


def _to_text(part: JsonValue, field: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        raise fields.invalid(field, 'must be {"type": "text", "text": a string} or a picture.')
    return str(part["text"])


def _to_prompt(item: Json, field: str) -> Picture | str:
    """Return the input in a prompt of llama.cpp, which is a text, or the marker of one picture."""
    prompt, media = fields.to_string(item[PROMPT], f"{field}.{PROMPT}"), item.get(MEDIA)
    if media in (None, []):
        return prompt
    found = fields.to_text_list(media, f"{field}.{MEDIA}")
    if len(found) > 1:
        _refuse(f"{field}.{MEDIA}", "has several pictures, and each input has one. Send each in its own.")
    if _MARKER.sub("", prompt, count=1).strip():
        _refuse(f"{field}.{PROMPT}", _BOTH)
    return to_picture(found[0], f"{field}.{MEDIA}[0]")


def looks_like_picture(text: str) -> bool:
    """Return whether a string that may be a text is a picture: a data URI, or the base64 of a file."""
    start = text[:24]
    if start[:11].lower() == "data:image/":
        return True
    if len(text) < _LEAST_FILE or not re.fullmatch(r"[A-Za-z0-9+/]+", start):
        return False
    return base64.b64decode(start).startswith(_SIGNATURES)


# Of PNG, JPEG, GIF and WebP; no file is shorter than so many characters of base64.
_SIGNATURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")
_LEAST_FILE = 32


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


def describe_inputs(settings: ServerSettings) -> Schema:
    """Return the schema of `embed_inputs`."""
    texts = text_fields.describe_inputs(settings)
    one = (PICTURE_OBJECT, _PROMPT_OBJECT)
    mixed = {
        "type": "array",
        "minItems": 1,
        "items": json_schema.any_of(json_schema.STRING, text_fields.TEXT_OBJECT, *one),
    }
    several = json_schema.described(json_schema.any_of(*one, mixed), "Pictures, and texts beside.")
    return json_schema.described(
        json_schema.any_of(*texts["anyOf"], several), "A text or picture, or several."
    )


def describe_for_model(settings: ServerSettings) -> Schema:
    """Return the schema of `embed_inputs`, whose accepted values depend on the model."""
    inputs = describe_inputs(settings)
    return json_schema.of_the_model(inputs, inputs["description"])


def read_inputs(
    body: RequestBody,
    name: str,
    *,
    has_modality: bool = False,
    otherwise: Callable[[RequestBody], Inputs] | None = None,
) -> Inputs:
    """Return the inputs to embed, of which some or all may be pictures. Raises `InvalidRequest`.

    `otherwise` reads a body without the field.
    """
    value = body.json.get(name)
    has_modality = has_modality and "modality" in body.json
    if isinstance(value, str) and not has_modality:
        return (value,)
    if value is None and otherwise is not None:
        return otherwise(body)
    reads_strings = has_modality and _reads_strings(body)
    items = value if isinstance(value, list) else [value]
    if not reads_strings and not any(map(_is_beyond_text, items)):
        return text_fields.read_inputs(body, name)
    return tuple(
        _to_input(item, f"{name}[{index}]" if isinstance(value, list) else name, reads_strings=reads_strings)
        for index, item in enumerate(items)
    )


def _is_beyond_text(item: JsonValue) -> bool:
    return is_picture(item) or (isinstance(item, dict) and PROMPT in item)


def _to_input(item: JsonValue, field: str, *, reads_strings: bool) -> Picture | str:
    if is_picture(item) or (reads_strings and isinstance(item, str)):
        return to_picture(item, field)
    if isinstance(item, dict) and PROMPT in item:
        return _to_prompt(item, field)
    if isinstance(item, dict) and isinstance(item.get("text"), str):
        return str(item["text"])
    if isinstance(item, list):
        raise fields.invalid(field, "is token ids beside a picture: send texts.")
    if isinstance(item, dict):
        raise fields.invalid(field, 'is an object without "text" or "image".')
    return fields.to_string(item, field)


def embed_inputs(name: str, *, has_modality: bool = False) -> Field[Inputs]:
    """Return the required inputs to embed. With `has_modality`, `modality` says what strings are."""
    return Field({name: describe_inputs}, partial(read_inputs, name=name, has_modality=has_modality), (name,))


def to_pictures(value: JsonValue, field: str) -> tuple[Picture, ...]:
    """Return the pictures of a list, or one alone. Raises `InvalidRequest`."""
    if isinstance(value, str | dict):
        return (to_picture(value, field),)
    items = fields.to_items(value, field, "a list of pictures")
    return tuple(to_picture(item, f"{field}[{index}]") for index, item in enumerate(items))


_ONE = json_schema.any_of(_STRING, PICTURE_OBJECT)
PICTURES = json_schema.any_of(_ONE, {"type": "array", "minItems": 1, "items": _ONE})


def has_pictures(inputs: Iterable[object]) -> bool:
    """Return whether one of the inputs is a picture."""
    return not _PICTURE_TYPES.isdisjoint(map(type, inputs))


def request_for(
    inputs: Inputs,
    dimensions: int | None = None,
    normalize: bool | None = None,
    dtypes: tuple[OutputDtype, ...] = (OutputDtype.FLOAT,),
    *,
    options: TextOptions,
) -> Embed | EmbedPictures:
    """Return the request for the embeddings of inputs: of pictures if there are any, or else of texts."""
    if has_pictures(inputs):
        mixed = cast(tuple[Picture | str, ...], inputs)
        return EmbedPictures(mixed, dimensions, normalize, dtypes, options=options)
    return Embed(cast(tuple[TextOrIds, ...], inputs), dimensions, normalize, dtypes, options=options)
