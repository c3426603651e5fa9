"""Fields of request bodies: each `Field` reads a value and describes it in the OpenAPI document.

Reading is lenient where clients differ (unknown fields are ignored, null means absent, "true" is true, 64.0
and "64" are 64) and strict where a guess could give a wrong answer. If a field has several names, the first
name that is present counts, but the values under all names are checked. No message repeats a value, since a
value may be secret, or nested so deeply that printing it fails. All functions that read values raise
`InvalidRequest`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

from vecmill.errors import InvalidRequest
from vecmill.requests import TextOrIds
from vecmill.values.aliases import JsonValue
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.base.errors import EmptyInput
from vecmill_server.base.json_io import kind_of
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.base.picture_urls import NO_HOSTS, PictureHosts
from vecmill_server.base.settings import ServerSettings

T = TypeVar("T")
U = TypeVar("U")
Json = Mapping[str, Any]

# Converts the JSON value of the field of this name, and raises `InvalidRequest`.
Convert = Callable[[JsonValue, str], T]

# Returns the input that a list of token ids stands for, of the field of this name.
ReadIds = Callable[[tuple[int, ...], str], TextOrIds]


class TaskOf(Protocol):
    """Returns the task of the model of a name, `None` while it loads. Raises `UnknownModel`.

    Without a name, it is the model that a request gets which models with these tasks can answer.
    """

    def __call__(self, name: str | None, tasks: Sequence[Task] = (), /) -> Task | None:
        """Return the task."""


@dataclass(frozen=True, slots=True)
class DialectOptions:
    """The settings and served models that the reading and writing of bodies depends on.

    `plain_documents` writes rerank documents as strings. `picture_hosts` are those of pictures' URLs.
    """

    read_ids: ReadIds
    task_of: TaskOf
    plain_documents: bool = False
    picture_hosts: PictureHosts = NO_HOSTS

    def task_of_body(self, json: Json) -> Task | None:
        """Return the task of the model that a body names, as `task_of`. Raises `InvalidRequest` too."""
        model = json.get("model")
        return self.task_of(None if model is None else to_string(model, "model"))


class _AlwaysRead(Enum):
    """Marks a field that is read whether a body has it or not."""

    YES = auto()


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One field of a request body, or several fields that make one value.

    `properties` are the JSON Schemas by name. `required` names the properties that must be present. A field
    is a class attribute of a `RequestBody`; the attribute of an instance is the value that was read. `absent`
    is the value for bodies that have none of the properties; without it, `read` is called for them too.
    Fields with `is_refusal` have no value, and are only checked, if a body has one of their properties.
    """

    properties: Mapping[str, Any]
    read: Callable[["RequestBody"], T]
    required: tuple[str, ...] = ()
    absent: T | _AlwaysRead = _AlwaysRead.YES
    is_refusal: bool = False

    @overload
    def __get__(self, body: None, owner: type) -> "Field[T]": ...
    @overload
    def __get__(self, body: "RequestBody", owner: type) -> T: ...
    def __get__(self, body: "RequestBody | None", owner: type) -> "Field[T] | T":
        return self if body is None else self.read(body)

    def otherwise(self: "Field[U | None]", default: U) -> "Field[U]":
        """Return a copy of this field with a default for bodies that lack the field."""
        read = self.read

        def read_or_default(body: "RequestBody") -> U:
            value = read(body)
            return default if value is None else value

        return Field(self.properties, read_or_default, self.required, default)


class RequestBody:
    """The JSON object that a client sent. Subclasses declare its fields, as attributes.

    A body has few of the fields that it could have. So the values of absent fields are set when it is made,
    as attributes that hide the fields, and one pass over its keys uncovers the fields that it has.

    `rules` are JSON Schema keywords about several fields. The name of the schema is `schema_name`, by default
    the name of the class. `harmless` are further fields that clients send, each with the reason why the
    server may ignore it: no number of a response depends on it.
    """

    schema_name: ClassVar[str | None] = None
    rules: ClassVar[Mapping[str, Any]] = {}
    harmless: ClassVar[Mapping[str, str]] = {}
    _refusals: ClassVar[tuple[Field[None], ...]] = ()
    _refused: ClassVar[frozenset[str]] = frozenset()
    # The value of each attribute whose field is absent, and the attributes that each key uncovers.
    _absent: ClassVar[Mapping[str, Any]] = {}
    _uncovered: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, json: Json, options: DialectOptions) -> None:
        """Raises `InvalidRequest` for fields that ask for features that the server does not have."""
        self.json = json
        self.dialect_options = options
        values, uncovered = self.__dict__, self._uncovered
        values.update(self._absent)
        for key in json:
            for attribute in uncovered.get(key, ()):
                values.pop(attribute, None)
        if not self._refused.isdisjoint(json):
            for field in self._refusals:
                field.read(self)

    def __init_subclass__(cls) -> None:
        cls._refusals = tuple(field for field in cls.fields() if field.is_refusal)
        cls._refused = frozenset(name for field in cls._refusals for name in field.properties)
        hidden = {
            attribute: field
            for attribute, field in cls._attributes().items()
            if field.absent is not _AlwaysRead.YES and not field.is_refusal
        }
        cls._absent = {attribute: field.absent for attribute, field in hidden.items()}
        keys = {key for field in hidden.values() for key in field.properties}
        cls._uncovered = {
            key: tuple(attribute for attribute, field in hidden.items() if key in field.properties)
            for key in keys
        }

    @classmethod
    def _attributes(cls) -> dict[str, Field[Any]]:
        """Return the declared fields by their attributes, in order."""
        attributes = {name: value for kind in reversed(cls.__mro__) for name, value in vars(kind).items()}
        return {name: value for name, value in attributes.items() if isinstance(value, Field)}

    @classmethod
    def fields(cls) -> Iterable[Field[Any]]:
        """Return the declared fields, in order."""
        return cls._attributes().values()

    @classmethod
    def schema(cls, settings: ServerSettings) -> Schema:
        """Return the JSON Schema of the body."""
        fields = list(cls.fields())
        required = [name for field in fields for name in field.required]
        return json_schema.an_object(
            required, {k: v for field in fields for k, v in field.properties.items()}, **cls.rules
        )

    @classmethod
    def component(cls) -> Component:
        """Return the schema by its name in the OpenAPI document."""
        return Component(cls.schema_name or cls.__name__, cls.schema)


def optional(
    names: Sequence[str], schema: Any, convert: Convert[T], note: str = "", *, depends_on_model: bool = False
) -> Field[T | None]:
    """Return a field that may be absent, under any of `names`."""

    def read(body: RequestBody) -> T | None:
        found = None
        for name in names:
            value = body.json.get(name)
            if value is not None:
                converted = convert(value, name)
                found = converted if found is None else found
        return found

    first, *others = names
    notes = {first: note, **dict.fromkeys(others, f"Another name of `{first}`, which takes precedence.")}
    describe = json_schema.of_the_model if depends_on_model else json_schema.described
    properties = {name: describe(schema, notes[name]) if note else schema for name in names}
    return Field(properties, read, absent=None)


def required(
    name: str,
    schema: Any,
    convert: Convert[T],
    wanted: str,
    note: str = "",
    *,
    depends_on_model: bool = False,
) -> Field[T]:
    """Return a field that must be present. `wanted` describes the values that the field takes."""

    def read(body: RequestBody) -> T:
        value = body.json.get(name)
        if value is None:
            raise invalid(name, f"is required: {wanted}.")
        return convert(value, name)

    describe = json_schema.of_the_model if depends_on_model else json_schema.described
    return Field({name: describe(schema, note) if note else schema}, read, (name,))


def combined(*parts: Field[Any], read: Callable[[RequestBody], T], absent: T) -> Field[T]:
    """Return a field of several parts. Its value is `absent` if a body has none of the parts."""
    properties = {name: schema for part in parts for name, schema in part.properties.items()}
    return Field(properties, read, absent=absent)


def refused(name: str, reason: str, note: str) -> Field[None]:
    """Return a field that must be absent or null."""
    return fixed(name, json_schema.NOTHING, lambda value, field: False, reason, note)


def fixed(
    name: str, schema: Any, is_usual: Callable[[JsonValue, str], bool], reason: str, note: str
) -> Field[None]:
    """Return a field that must be absent, null, or a value that changes nothing.

    `schema` describes such values, and `is_usual` tells whether a value is one. `reason` is the error message
    for other values.
    """

    def read(body: RequestBody) -> None:
        value = body.json.get(name)
        if value is not None and not is_usual(value, name):
            raise InvalidRequest(reason, field=name)

    return Field({name: json_schema.described(schema, note)}, read, is_refusal=True)


def string(*names: str, note: str = "", depends_on_model: bool = False) -> Field[str | None]:
    """Return an optional string."""
    return optional(names, json_schema.OPTIONAL_STRING, to_string, note, depends_on_model=depends_on_model)


def count(*names: str, note: str = "", depends_on_model: bool = False) -> Field[int | None]:
    """Return an optional whole number from 1 up. Some clients write 0 for no limit."""
    return optional(names, json_schema.OPTIONAL_COUNT, to_count, note, depends_on_model=depends_on_model)


def flag(*names: str, note: str = "", depends_on_model: bool = False) -> Field[bool | None]:
    """Return an optional boolean, which may also be a string."""
    return optional(names, json_schema.FLAG, to_flag, note, depends_on_model=depends_on_model)


def choice(
    *names: str, choices: Sequence[str], note: str = "", depends_on_model: bool = False
) -> Field[str | None]:
    """Return an optional string that is one of `choices`."""
    schema = json_schema.one_of_words(choices)
    return optional(names, schema, choice_of(choices), note, depends_on_model=depends_on_model)


def keyword(*names: str, values: Mapping[str, T], wanted: str, note: str) -> Field[T | None]:
    """Return an optional string that is a key of `values`, in any case, and is read as the key's value."""

    def convert(value: JsonValue, name: str) -> T:
        key = to_string(value, name).lower()
        if key not in values:
            raise invalid(name, f"must be {wanted}.")
        return values[key]

    return optional(names, json_schema.words_in_any_case(tuple(values)), convert, note)


def required_string(name: str) -> Field[str]:
    """Return a required string."""
    return required(name, json_schema.STRING, to_string, "a string")


def text_or_texts(name: str) -> Field[tuple[str, ...]]:
    """Return a required string or list of strings."""
    return required(name, json_schema.TEXT_OR_TEXTS, to_texts, TEXTS_WANTED)


def text_list(name: str) -> Field[tuple[str, ...]]:
    """Return a required list of strings."""
    return required(name, json_schema.TEXTS, to_text_list, "a list of strings")


def invalid(field: str, fault: str) -> InvalidRequest:
    """Return the error for a field; the message is the quoted name and `fault`."""
    return InvalidRequest(f"`{field}` {fault}", field=field)


TEXTS_WANTED = "a string, or a list of strings"


def to_string(value: JsonValue, field: str) -> str:
    """Return a string."""
    if isinstance(value, str):
        return value
    raise invalid(field, f"must be a string, not {kind_of(value)}.")


def whole_number(value: JsonValue) -> int | None:
    """Return a whole number, which some clients write as 64.0 or "64"; `None` for other values."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    is_digits = isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) is not None
    return int(str(value)) if is_digits else None


_WHOLE_NUMBER = re.compile(json_schema.WHOLE_NUMBER_PATTERN)


def to_count(value: JsonValue, field: str) -> int | None:
    """Return a whole number from 1 up, or `None` for 0."""
    number = whole_number(value)
    if number is None or not 0 <= number <= json_schema.LARGEST_WHOLE_NUMBER:
        raise invalid(field, "must be a whole number that is not negative.")
    return number or None


def to_flag(value: JsonValue, field: str) -> bool:
    """Return a boolean."""
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if isinstance(value, bool):
        return value
    raise invalid(field, "must be true or false.")


def choice_of(choices: Sequence[str]) -> Convert[str]:
    """Return the conversion of a string that must be one of `choices`."""

    def convert(value: JsonValue, field: str) -> str:
        if isinstance(value, str) and value in choices:
            return value
        to_string(value, field)
        raise invalid(field, f"must be one of: {', '.join(choices)}.")

    return convert


def to_items(value: JsonValue, field: str, wanted: str) -> list[JsonValue]:
    """Return the items of a list. Raises `EmptyInput` for an empty list."""
    if not isinstance(value, list):
        raise invalid(field, f"must be {wanted}, not {kind_of(value)}.")
    if not value:
        raise EmptyInput(f"`{field}` is an empty list: send at least one item.", field=field)
    return value


def to_text_list(value: JsonValue, field: str, wanted: str = "a list of strings") -> tuple[str, ...]:
    """Return the strings of a list."""
    items = to_items(value, field, wanted)
    if {*map(type, items)} != {str}:
        for index, item in enumerate(items):
            to_string(item, f"{field}[{index}]")
    return tuple(items)


def texts_of(convert: Convert[str]) -> Convert[tuple[str, ...]]:
    """Return the conversion of a list whose items `convert` converts to texts."""

    def convert_items(value: JsonValue, field: str) -> tuple[str, ...]:
        items = to_items(value, field, "a list of texts")
        return tuple(convert(item, f"{field}[{index}]") for index, item in enumerate(items))

    return convert_items


def to_texts(value: JsonValue, field: str) -> tuple[str, ...]:
    """Return a string, or the strings of a list."""
    return (value,) if isinstance(value, str) else to_text_list(value, field, TEXTS_WANTED)


def to_token_ids(value: JsonValue, field: str, wanted: str = "a list of token ids") -> tuple[int, ...]:
    """Return token ids, which are whole numbers from 0 up. Raises `EmptyInput` for an empty list."""
    if not isinstance(value, list):
        raise invalid(field, f"must be {wanted}, not {kind_of(value)}.")
    if not value:
        raise EmptyInput(f"`{field}` is an empty list of token ids.", field=field)
    for index, item in enumerate(value):
        if type(item) is not int or not 0 <= item <= json_schema.LARGEST_WHOLE_NUMBER:
            place = f"{field}[{index}]"
            raise invalid(place, f"must be a token id, a whole number from 0 up, not {kind_of(item)}.")
    return tuple(value)
