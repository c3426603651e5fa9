"""The words that descriptions are made of: schemas of plain values, and what a family of routes hands in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecmill_server.documents import LARGEST_WHOLE_NUMBER

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """The paths of a family of routes, and the schemas that only they refer to, by name."""

    paths: Mapping[str, Mapping[str, Any]]
    schemas: Mapping[str, Schema]


STRING: Schema = {"type": "string"}
OPTIONAL_STRING: Schema = {"type": "string", "nullable": True}
NUMBER: Schema = {"type": "number", "format": "float"}
COUNT: Schema = {"type": "integer", "minimum": 0}
ANYTHING: Schema = {}

# Text that says yes or no is how some clients send booleans.
_TRUE, _FALSE = "[Tt][Rr][Uu][Ee]", "[Ff][Aa][Ll][Ss][Ee]"
FLAG: Schema = {
    "anyOf": [
        {"type": "boolean", "nullable": True},
        {"type": "string", "pattern": f"^({_TRUE}|{_FALSE})$"},
    ]
}
# A flag for what is not done: clients send it, and only no is an answer.
NEVER: Schema = {
    "anyOf": [
        {"type": "boolean", "nullable": True, "not": {"enum": [True]}},  # generators take no enum of booleans
        {"type": "string", "pattern": f"^{_FALSE}$"},
    ]
}
OPTIONAL_COUNT: Schema = {**COUNT, "maximum": LARGEST_WHOLE_NUMBER, "nullable": True}
NOTHING: Schema = {"type": "string", "nullable": True, "enum": [None]}
TOKEN_IDS: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "integer", "minimum": 0, "maximum": LARGEST_WHOLE_NUMBER},
}
TEXTS: Schema = {"type": "array", "minItems": 1, "items": STRING}
TEXT_OR_TEXTS: Schema = {"anyOf": [STRING, TEXTS]}


def an_object(required: Sequence[str], properties: Mapping[str, Schema], **more: object) -> dict[str, Any]:
    """An object with these properties; any others are ignored."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties), **more}
    return schema | {"required": list(required)} if required else schema


def list_of(item: Schema) -> dict[str, Any]:
    """A list of any length."""
    return {"type": "array", "items": item}


def any_of(*schemas: Schema) -> Schema:
    """At least one of `schemas`; the only one is itself."""
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def one_of_words(words: Sequence[str]) -> dict[str, Any]:
    """One of `words`, or null."""
    return {"type": "string", "nullable": True, "enum": [*map(str, words), None]}


def word_pattern(words: Sequence[str]) -> str:
    """A pattern of `words` in capitals, small letters, or both. ASCII letters, digits and punctuation."""
    return f"^({'|'.join(''.join(map(_any_case, word)) for word in words)})$"


def words_in_any_case(words: Sequence[str]) -> dict[str, Any]:
    """One of `words` in capitals, small letters, or both; or null."""
    return {"type": "string", "nullable": True, "pattern": word_pattern(words)}


def described(schema: Schema, text: str, **more: object) -> dict[str, Any]:
    """The schema, with a sentence for whoever reads it."""
    return {**schema, "description": text, **more}


def of_the_model(schema: Schema, text: str) -> dict[str, Any]:
    """As `described`, for a field of which the model decides what is accepted."""
    return described(schema, text, **{"x-depends-on-model": True})


def reference(name: str) -> dict[str, str]:
    """What stands for the schema of that name."""
    return {"$ref": f"#/components/schemas/{name}"}


def without(*names: str) -> Schema:
    """A body without the keys `names`."""
    return {"not": any_of(*({"required": [name]} for name in names))}


def not_both(first: str, second: str) -> Schema:
    """A body in which one of the texts `first` and `second` is absent or null."""
    both = {"required": [first, second], "properties": {first: STRING, second: STRING}}
    return {"not": both}


def _any_case(character: str) -> str:
    if character.isalpha():
        return f"[{character.upper()}{character.lower()}]"
    return character if character.isalnum() or character in "_-" else f"\\{character}"
