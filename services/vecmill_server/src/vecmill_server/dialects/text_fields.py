"""Fields that several APIs share: the model, the inputs, text options, dimensions and scores."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from vecmill.requests import DEFAULT_TEXT_OPTIONS, Priority, Purpose, TextOptions, TextOrIds, Truncation
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.base.settings import PRIORITIES, ServerSettings, TokenIds
from vecmill_server.dialects import fields
from vecmill_server.dialects.fields import Field, RequestBody

MODEL = fields.string(
    "model",
    note="The name of the model, or an alias. Without it, the first model whose task fits the request.",
    depends_on_model=True,
)
# The model of a route whose path names it.
PATH_MODEL = Field(
    {"model": json_schema.described(json_schema.ANYTHING, "Ignored: the path names the model.")},
    MODEL.read,
    absent=None,
)


def _to_priority(value: JsonValue, field: str) -> Priority | None:
    # vLLM and Cohere count: the lowest number goes first, and 0 is usual.
    number = fields.whole_number(value)
    if number is not None:
        return None if number == 0 else Priority.BULK if number > 0 else Priority.INTERACTIVE
    found = PRIORITIES.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise fields.invalid(field, f"must be {', '.join(PRIORITIES)} or a whole number.")
    return found


PRIORITY = fields.optional(
    ("priority",),
    json_schema.any_of(json_schema.words_in_any_case(tuple(PRIORITIES)), json_schema.WHOLE_NUMBER),
    _to_priority,
    "`interactive` or `bulk`. As a number: above 0 is bulk, below 0 is interactive. By default the size of "
    "the request decides.",
)

# The tasks of Jina's retrieval models; each has queries and passages.
_SEARCHES = ("retrieval", "code", "nl2code", "code2code", "code2nl", "code2completion", "qa")

# The words of Cohere, Jina, Voyage, Nomic, Nvidia and Google for the purpose of a text.
PURPOSES: Mapping[str, Purpose] = {
    "query": Purpose.QUERY,
    "search_query": Purpose.QUERY,
    "retrieval_query": Purpose.QUERY,
    "code_retrieval_query": Purpose.QUERY,
    "question_answering": Purpose.QUERY,  # Google's: the question; the answers are documents
    "fact_verification": Purpose.QUERY,
    **{f"{search}.query": Purpose.QUERY for search in _SEARCHES},
    "document": Purpose.DOCUMENT,
    "passage": Purpose.DOCUMENT,
    "search_document": Purpose.DOCUMENT,
    "retrieval_document": Purpose.DOCUMENT,
    **{f"{search}.passage": Purpose.DOCUMENT for search in _SEARCHES},
    "classification": Purpose.CLASSIFICATION,
    "clustering": Purpose.CLUSTERING,
    "separation": Purpose.CLUSTERING,
    "similarity": Purpose.SIMILARITY,
    "text-matching": Purpose.SIMILARITY,
    "semantic_similarity": Purpose.SIMILARITY,
}

# Cohere's words for truncation name the end that is cut off.
_CUTS: Mapping[str, Truncation] = {
    "none": Truncation(is_allowed=False),
    "start": Truncation(is_allowed=True, keeps_end=True),
    "end": Truncation(is_allowed=True, keeps_end=False),
    "true": Truncation(is_allowed=True),
    "false": Truncation(is_allowed=False),
}


def _to_cut(value: JsonValue, field: str) -> Truncation:
    key = str(value).lower() if isinstance(value, str | bool) else ""
    if key not in _CUTS:
        raise fields.invalid(field, "must be true, false, NONE, START or END.")
    return _CUTS[key]


def _to_limit(value: JsonValue, field: str) -> int | None:
    return None if value in (-1, "-1") else fields.to_count(value, field)


def _to_purpose(value: JsonValue, field: str) -> Purpose:
    key = fields.to_string(value, field).lower()
    if key == "image":
        raise fields.invalid(field, "is image, and this route reads only text.")
    if key not in PURPOSES:
        raise fields.invalid(field, f"must be one of: {', '.join(PURPOSES)}.")
    return PURPOSES[key]


_CUT = fields.optional(
    ("truncate", "truncation"),
    {
        "anyOf": [
            {"type": "boolean", "nullable": True},
            {"type": "string", "pattern": json_schema.word_pattern(tuple(_CUTS))},
        ]
    },
    _to_cut,
    "Whether texts that are too long are cut (true, START, END) or refused (false, NONE); by default as "
    "the server is set up to do.",
    depends_on_model=True,
)
_SIDE = fields.keyword(
    "truncation_direction",
    "truncation_side",
    values={"left": True, "right": False},
    wanted="Left or Right: the end that is cut off",
    note="The end that is cut off; the model's own by default.",
)
_LIMIT = fields.optional(
    ("truncate_prompt_tokens",),
    json_schema.any_of(
        {"type": "integer", "minimum": -1, "maximum": json_schema.LARGEST_WHOLE_NUMBER, "nullable": True},
        *json_schema.OPTIONAL_COUNT["anyOf"][1:],
    ),
    _to_limit,
    "The number of tokens that texts are cut to; 0 and -1 mean the longest input of the model.",
    depends_on_model=True,
)


def _read_truncation(body: RequestBody) -> Truncation:
    cut, keeps_end = _CUT.read(body) or Truncation(), _SIDE.read(body)
    is_allowed, limit = cut.is_allowed, _LIMIT.read(body)
    if is_allowed is None and body.json.get("truncate_prompt_tokens") is not None:
        is_allowed = True  # vLLM's way to ask for truncation
    return Truncation(is_allowed, cut.keeps_end if keeps_end is None else keeps_end, limit)


TRUNCATION = fields.combined(_CUT, _SIDE, _LIMIT, read=_read_truncation, absent=Truncation())


def purpose(*names: str) -> Field[Purpose | None]:
    """Return the field for the purpose of the texts, which accepts the values of any API."""
    return fields.optional(
        names, json_schema.words_in_any_case(tuple(PURPOSES)), _to_purpose, "The purpose of the texts."
    )


PROMPT_NAME = fields.string(
    "prompt_name", note="The name of one of the model's prompts.", depends_on_model=True
)
PROMPT = fields.string("prompt", note="A prompt to put before each text, instead of `prompt_name`.")


def text_options(**parts: Field[Any]) -> Field[TextOptions]:
    """Return the field for `TextOptions`. `parts` are its attributes, with the same values if absent."""

    def read(body: RequestBody) -> TextOptions:
        keys = body.json.keys()
        return TextOptions(
            **{name: part.read(body) for name, part in parts.items() if not keys.isdisjoint(part.properties)}
        )

    return fields.combined(*parts.values(), read=read, absent=DEFAULT_TEXT_OPTIONS)


TEXT_OPTIONS = text_options(
    prompt_name=PROMPT_NAME, prompt=PROMPT, purpose=purpose("input_type"), truncation=TRUNCATION
)
TRUNCATION_OPTIONS = text_options(truncation=TRUNCATION)
PAIR_LIMITS = {
    "query_tokens": fields.count(
        "max_tokens_per_query",
        "max_query_length",
        note="The number of tokens that queries are cut to; 0 means no limit.",
    ),
    "document_tokens": fields.count(
        "max_tokens_per_doc",
        "max_doc_length",
        note="The number of tokens that documents are cut to; 0 means no limit.",
    ),
}

DIMENSIONS = fields.count(
    "dimensions",
    "output_dimension",
    note="The number of dimensions to keep; 0 keeps all. A multiple of 8 for binary and ubinary.",
    depends_on_model=True,
)
NORMALIZE = fields.flag(
    "normalize",
    "normalized",
    "use_activation",
    note="Whether to scale embeddings to length 1; by default as the model does. If false, the model's own "
    "final normalisation is left out too.",
    depends_on_model=True,
)


def _to_norm(value: JsonValue, field: str) -> bool:
    if isinstance(value, bool) or value not in (-1, 2, "-1", "2"):
        raise fields.invalid(field, "must be -1 (no normalisation) or 2 (Euclidean).")
    return value in (2, "2")


EMBD_NORMALIZE = fields.optional(
    ("embd_normalize",),
    {"type": "integer", "nullable": True, "enum": [-1, 2, None]},
    _to_norm,
    "llama.cpp's name: 2 scales embeddings to length 1, -1 leaves the model's own normalisation out too.",
)

_RAW = fields.flag("raw_scores", note="Whether to leave out the model's activation function.")
_ACTIVATED = fields.flag(
    "use_activation", "activation", "softmax", note="The opposite of `raw_scores`, which takes precedence."
)


def _read_raw_scores(body: RequestBody) -> bool:
    is_activated, is_raw = _ACTIVATED.read(body), _RAW.read(body)
    return is_activated is False if is_raw is None else is_raw


RAW_SCORES = fields.combined(_RAW, _ACTIVATED, read=_read_raw_scores, absent=False)
INSTRUCTION = fields.string(
    "instruction", note="The task, for rerankers that are language models.", depends_on_model=True
)


def _check_modality(body: RequestBody) -> None:
    value = body.json.get("modality")
    if value is not None and fields.to_string(value, "modality") != "text":
        raise fields.invalid("modality", 'must be "text": this server does not read images or audio.')


MODALITY: Field[None] = Field(
    {"modality": json_schema.described(json_schema.one_of_words(("text",)), "This route reads only text.")},
    _check_modality,
    is_refusal=True,
)

# The keys of an object for a picture, of which it has one: Jina's, those of LangChain for Jina, that of
# OpenAI's messages, and Voyage's.
PICTURE_KEYS = ("image", "bytes", "url", "image_url", "image_base64")


def is_picture(item: JsonValue) -> bool:
    """Return whether a value is an object for a picture."""
    return isinstance(item, dict) and any(item.get(key) is not None for key in PICTURE_KEYS)


TEXT_OBJECT = Component("TextObject", json_schema.an_object(("text",), {"text": json_schema.STRING}))


def describe_inputs(settings: ServerSettings) -> Schema:
    """Return the schema of the inputs to embed, with token ids where the server accepts them."""
    ids = (
        ()
        if settings.token_ids is TokenIds.REFUSE
        else (json_schema.of_the_model(json_schema.TOKEN_IDS, "One text as token ids."),)
    )
    several = {
        "type": "array",
        "minItems": 1,
        "items": json_schema.any_of(json_schema.STRING, TEXT_OBJECT, *ids),
    }
    return json_schema.described(
        json_schema.any_of(json_schema.STRING, TEXT_OBJECT, several, *ids), "A text, or several."
    )


def read_inputs(body: RequestBody, name: str) -> tuple[TextOrIds, ...]:
    """Return the inputs to embed: a text, a list of texts, or the same as token ids.

    A list of numbers is one text. A text may also be `{"text": ...}`, the form of Jina's clients.
    """
    value = body.json.get(name)
    if isinstance(value, str):
        return (value,)
    if isinstance(value, dict):
        return (_to_input(value, name, body),)
    if value is None:
        raise fields.invalid(name, f"is required: {fields.TEXTS_WANTED}.")
    items = fields.to_items(value, name, fields.TEXTS_WANTED)
    if {*map(type, items)} == {str}:
        return tuple(items)
    if type(items[0]) is float:
        raise fields.invalid(
            f"{name}[0]", "is a fraction: send texts, or token ids, which are whole numbers."
        )
    if type(items[0]) is int:  # one text, as ids
        return (_to_input(items, name, body),)
    return tuple(_to_input(item, f"{name}[{index}]", body) for index, item in enumerate(items))


def embed_inputs(name: str) -> Field[tuple[TextOrIds, ...]]:
    """Return the required inputs to embed."""
    return Field({name: describe_inputs}, partial(read_inputs, name=name), (name,))


def _to_input(item: JsonValue, field: str, body: RequestBody) -> TextOrIds:
    if isinstance(item, list):
        return body.dialect_options.read_ids(fields.to_token_ids(item, field), field)
    if isinstance(item, dict) and isinstance(item.get("text"), str):
        return str(item["text"])
    if is_picture(item) or (isinstance(item, dict) and "audio" in item):
        raise fields.invalid(field, "is an image or audio, and this route reads only text.")
    if isinstance(item, dict):
        raise fields.invalid(field, 'is an object without "text": send the text itself.')
    return fields.to_string(item, field)


ADD_SPECIAL_TOKENS = fields.flag(
    "add_special_tokens", note="Whether to add the model's special tokens; true by default."
).otherwise(True)


def token_ids(name: str) -> Field[tuple[int, ...]]:
    """Return the required token ids of one text."""
    return fields.required(
        name,
        json_schema.TOKEN_IDS,
        fields.to_token_ids,
        "a list of token ids",
        "Token ids of the model.",
        depends_on_model=True,
    )
