"""The JSON Schema vocabulary, in the form of OpenAPI 3.0, that describes request and response bodies.

A schema may contain, in place of another schema, a `Component` or a function of the server's settings.
`app.openapi.document` replaces them with references and plain schemas.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LARGEST_WHOLE_NUMBER = 2**31 - 1
# Some clients send whole numbers as strings.
WHOLE_NUMBER_PATTERN = "^[0-9]{1,9}$"

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """A named schema, or example (see `like`), that the OpenAPI document contains once and references."""

    name: str
    schema: Any


STRING: Schema = {"type": "string"}
OPTIONAL_STRING: Schema = {"type": "string", "nullable": True}
NUMBER: Schema = {"type": "number", "format": "float"}
BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
WHOLE_NUMBER: Schema = {"type": "integer"}
ANYTHING: Schema = {}

# Some clients send booleans as strings.
_TRUE, _FALSE = "[Tt][Rr][Uu][Ee]", "[Ff][Aa][Ll][Ss][Ee]"
FLAG: Schema = {
    "anyOf": [
        {"type": "boolean", "nullable": True},
        {"type": "string", "pattern": f"^({_TRUE}|{_FALSE})$"},
    ]
}
# A flag that must not be true. Test generators ignore an enum of booleans.
NEVER: Schema = {
    "anyOf": [
        {"type": "boolean", "nullable": True, "not": {"enum": [True]}},
        {"type": "string", "pattern": f"^{_FALSE}$"},
    ]
}
# A flag that must not be false.
ALWAYS: Schema = {
    "anyOf": [
        {"type": "boolean", "nullable": True, "not": {"enum": [False]}},
        {"type": "string", "pattern": f"^{_TRUE}$"},
    ]
}
# A flag that is true.
IS_TRUE: Schema = {
    "anyOf": [
        {"type": "boolean", "not": {"enum": [False]}},
        {"type": "string", "pattern": f"^{_TRUE}$"},
    ]
}
OPTIONAL_COUNT: Schema = {
    "anyOf": [
        {**COUNT, "maximum": LARGEST_WHOLE_NUMBER, "nullable": True},
        {"type": "string", "pattern": WHOLE_NUMBER_PATTERN},
    ]
}
NOTHING: Schema = {"type": "string", "nullable": True, "enum": [None]}
TOKEN_IDS: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "integer", "minimum": 0, "maximum": LARGEST_WHOLE_NUMBER},
}
TEXTS: Schema = {"type": "array", "minItems": 1, "items": STRING}
TEXT_OR_TEXTS: Schema = {"anyOf": [STRING, TEXTS]}


def like(example: Any) -> Any:
    """Return the schema of JSON like `example`, the usual description of a response body.

    A dictionary becomes an object with all of its keys required. A list with one item becomes an array of
    any length. A string becomes a constant. `str`, `int` (at least 0), `float` and `bool` become any value of
    the type. Schemas, components and functions are returned unchanged.
    """
    if isinstance(example, Mapping):
        is_schema = isinstance(example.get("type"), str) or not _KEYWORDS.isdisjoint(example)
        return example if is_schema or not example else an_object(tuple(example), example)
    if isinstance(example, list):
        return {"type": "array", "items": like(example[0])}
    if isinstance(example, str):
        return {"type": "string", "enum": [example]}
    return _TYPES[example] if isinstance(example, type) else example


_KEYWORDS = frozenset({"allOf", "anyOf", "description", "not", "properties", "required"})
_TYPES: Mapping[type, Schema] = {str: STRING, int: COUNT, float: NUMBER, bool: BOOLEAN}


def an_object(required: Sequence[str], properties: Mapping[str, Any], **more: object) -> dict[str, Any]:
    """Return the schema of an object with these properties; other properties are ignored."""
    schemas = {name: like(example) for name, example in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": schemas, **more}
    return schema | {"required": list(required)} if required else schema


def nullable(example: Any) -> dict[str, Any]:
    """Return the schema of JSON like `example`, or null."""
    return {**like(example), "nullable": True}


def any_of(*examples: Any) -> Any:
    """Return the schema of values that are like at least one of `examples`."""
    return like(examples[0]) if len(examples) == 1 else {"anyOf": list(map(like, examples))}


def all_of(*schemas: Any, **more: object) -> dict[str, Any]:
    """Return the schema of values that match every one of `schemas`."""
    return {"allOf": list(schemas), **more}


def word(*words: str) -> dict[str, Any]:
    """Return the schema of one of `words`."""
    return {"type": "string", "enum": list(words)}


def one_of_words(words: Sequence[str]) -> dict[str, Any]:
    """Return the schema of one of `words`, or null."""
    return {"type": "string", "nullable": True, "enum": [*map(str, words), None]}


def word_pattern(words: Sequence[str]) -> str:
    """Return a pattern that matches each of `words` in upper, lower or mixed case."""
    return f"^({'|'.join(''.join(map(_any_case, word)) for word in words)})$"


def words_in_any_case(words: Sequence[str]) -> dict[str, Any]:
    """Return the schema of one of `words` in upper, lower or mixed case, or null."""
    return {"type": "string", "nullable": True, "pattern": word_pattern(words)}


def described(example: Any, text: str, **more: object) -> dict[str, Any]:
    """Return the schema of JSON like `example` with a description."""
    return {**like(example), "description": text, **more}


def of_the_model(example: Any, text: str) -> dict[str, Any]:
    """Return the schema of a field whose accepted values depend on the model, with a description."""
    return described(example, text, **{"x-depends-on-model": True})


def without(*names: str) -> Schema:
    """Return the schema of a body without the keys `names`."""
    return {"not": any_of(*({"required": [name]} for name in names))}


def not_both(first: str, second: str) -> Schema:
    """Return the schema of a body in which at most one of the texts `first` and `second` is set."""
    both = {"required": [first, second], "properties": {first: STRING, second: STRING}}
    return {"not": both}


def any_true(*names: str, by_default: str) -> Any:
    """Return the schema of a body in which at least one flag is true; `by_default` is if it is absent."""
    named = ({"required": [name], "properties": {name: IS_TRUE}} for name in names)
    return any_of({"properties": {by_default: ALWAYS}}, *named)


def _any_case(character: str) -> str:
    if character.isalpha():
        return f"[{character.upper()}{character.lower()}]"
    return character if character.isalnum() or character in "_-" else f"\\{character}"
