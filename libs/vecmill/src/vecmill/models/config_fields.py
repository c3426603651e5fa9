"""Reads and checks the values of the JSON files of a model directory.

Whoever wrote a directory chose the type and the size of each value, so no value is used that did not pass
through a function of this module. Each function `read_...` reads the value of one key. An invalid value
raises `CorruptModel`, an unsupported value `UnsupportedModel`. Both messages name the file, by default
config.json, and the key. transformers writes `null` for a default, so a null key counts as absent.

A config class of an architecture declares its fields with `size`, `epsilon`, `activation` or `flag`, each
with the default of transformers, and `read_fields` reads all fields by name.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.values.messages import not_supported, show

Settings = Mapping[str, Any]
"""The values of a JSON object by key."""

File = str | Path
"""The name of a file in error messages."""

CONFIG = "config.json"

# transformers' names for the activations that graphs can build.
ACTIVATIONS = frozenset(
    {
        "gelu",
        "gelu_fast",
        "gelu_new",
        "gelu_python",
        "gelu_python_tanh",
        "gelu_pytorch_tanh",
        "linear",
        "quick_gelu",
        "relu",
        "sigmoid",
        "silu",
        "swish",
        "tanh",
    }
)


# Far above published sizes; small enough that no size by itself takes much memory or time.
MOST_SIZE = 2**24
MOST_LAYERS = 512
MOST_DISTANCE = 2**16
MOST_HEAD_DIM = 2**14
MOST_LABELS = 2**20
MOST_TOKENS = 2**31 - 1  # of a longest input

# Single precision, in which graphs compute, has no numbers far outside these.
_LEAST_NUMBER, _MOST_NUMBER = 1e-30, 1e30


@contextmanager
def keys_renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Name keys as their file does, in an error of a model that is raised inside the context.

    `names` has the key of the file for each key that is read in its place.
    """
    try:
        yield
    except (CorruptModel, UnsupportedModel) as error:
        error.message = re.sub(r"\w+", lambda found: names.get(found[0], found[0]), error.message)
        error.args = (error.message,)
        raise


def read_size(
    config: Settings, key: str, default: int, *, least: int = 1, most: int = MOST_SIZE, file: File = CONFIG
) -> int:
    """Read a whole number from `least` to `most`."""
    return check_whole_number(_value(config, key, default), f"{file}: {key}", least, most)


def check_whole_number(value: object, name: str, least: int = 1, most: int = MOST_SIZE) -> int:
    """Return `value`, checked. Raises `CorruptModel`, whose message begins with `name`, if it is invalid.

    A whole number may be written as a float, such as 512.0.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise CorruptModel(f"{name} must be a whole number of at least {least}.")
    if value > most:
        raise CorruptModel(f"{name} must be a whole number of at most {most}.")
    return value


def read_number(config: Settings, key: str, default: float) -> float:
    """Read a number above 0."""
    return check_number(_value(config, key, default), f"{CONFIG}: {key}")


def check_number(value: object, name: str) -> float:
    """Return `value`, a number above 0. Raises `CorruptModel`, whose message begins with `name`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise CorruptModel(f"{name} must be a number above 0.")
    if not _LEAST_NUMBER <= value <= _MOST_NUMBER:
        raise CorruptModel(f"{name} must be a number from {_LEAST_NUMBER} to {_MOST_NUMBER}.")
    return float(value)


def read_epsilon(config: Settings, key: str, default: float) -> float:
    """Read a number between 0 and 1."""
    value = read_number(config, key, default)
    if value >= 1:
        raise CorruptModel(f"config.json: {key} must be a number between 0 and 1.")
    return value


def read_flag(config: Settings, key: str, *, default: bool, file: File = CONFIG) -> bool:
    """Read true or false, which may be written as 1 or 0."""
    value = _value(config, key, default)
    if not isinstance(value, int) or value not in (0, 1):
        raise CorruptModel(f"{file}: {key} must be true or false.")
    return bool(value)


def read_text(config: Settings, key: str, default: str | None = None, *, file: File = CONFIG) -> str | None:
    """Read a string of valid Unicode."""
    value = _value(config, key, default)
    return None if value is None else check_text(value, f"{file}: {key}")


def check_text(value: object, name: str) -> str:
    """Return `value`, a string of valid Unicode. Raises `CorruptModel`, whose message begins with `name`."""
    if not isinstance(value, str):
        raise CorruptModel(f"{name} must be a string.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise CorruptModel(f"{name} must be valid Unicode.") from error
    return value


def read_texts(config: Settings, key: str, *, file: File = CONFIG) -> tuple[str, ...]:
    """Read a list of strings; empty if there is none."""
    value = _value(config, key, [])
    if not isinstance(value, list):
        raise CorruptModel(f"{file}: {key} must be a list of strings.")
    return tuple(check_text(item, f"{file}: {key}[{index}]") for index, item in enumerate(value))


def read_mapping(config: Settings, key: str, *, file: File = CONFIG) -> Settings:
    """Read an object; empty if there is none."""
    value = _value(config, key, {})
    if not isinstance(value, Mapping):
        raise CorruptModel(f"{file}: {key} must be an object.")
    return value


def read_choice(
    config: Settings, key: str, choices: Collection[str], default: str | None = None, *, file: File = CONFIG
) -> str | None:
    """Read one of `choices`. Raises `UnsupportedModel` for other values."""
    value = _value(config, key, default)
    if value is None or (isinstance(value, str) and value in choices):
        return value
    raise UnsupportedModel(not_supported(f"{file}: {key}", value, sorted(choices)))


def read_activation(config: Settings, key: str, default: str) -> str:
    """Read the name of an activation that graphs can build."""
    return str(read_choice(config, key, ACTIVATIONS, default))


def read_token_id(config: Settings, key: str, default: int | None) -> int | None:
    """Read the id of a token; `None` if the value is null."""
    value = config.get(key, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST_TOKENS:
        raise CorruptModel(f"config.json: {key} must be a token id or null.")
    return value


def check_token_number(value: object, name: str) -> int:
    """Return `value`, the id of a token. Raises `CorruptModel`, whose message begins with `name`."""
    return check_whole_number(value, name, 0, MOST_TOKENS)


def size(default: int, *, least: int = 1, most: int = MOST_SIZE) -> Any:
    """Declare a field that is a whole number from `least` to `most`."""
    return _declare(lambda config, key: read_size(config, key, default, least=least, most=most))


def epsilon(default: float) -> Any:
    """Declare a field that is a number between 0 and 1."""
    return _declare(lambda config, key: read_epsilon(config, key, default))


def activation(default: str) -> Any:
    """Declare a field that is the name of an activation."""
    return _declare(lambda config, key: read_activation(config, key, default))


def flag(default: bool) -> Any:
    """Declare a field that is true or false."""
    return _declare(lambda config, key: read_flag(config, key, default=default))


def read_fields(kind: type, config: Settings, **given: Any) -> dict[str, Any]:
    """Read the declared fields of the dataclass `kind`. Return them with the `given` fields.

    Raises `CorruptModel` for invalid values, `UnsupportedModel` for unsupported ones.
    """
    found = {
        one.name: one.metadata["read"](config, one.name)
        for one in fields(kind)
        if "read" in one.metadata and one.name not in given
    }
    return {**found, **given}


def _declare(read: Callable[[Settings, str], Any]) -> Any:
    return field(metadata={"read": read})


def refuse_unless(config: Settings, allowed: Mapping[str, tuple[Any, ...]], *, by: str = "") -> None:
    """Raise `UnsupportedModel` if a key is present, not null, and not one of its `allowed` values.

    Used for keys that change the outputs and have unsupported values. `False` also allows 0. `by` are the
    keys that determine the allowed values, if any do.
    """
    for key, values in allowed.items():
        value = config.get(key)
        if value is not None and value not in values:
            hint = f"only {', '.join(map(repr, values))} is" if values else "remove it if it has no effect"
            hint = f"{hint}, by {by}" if by else hint
            raise UnsupportedModel(f"config.json: {key} {show(value)} is not supported; {hint}.")


def head_size(hidden_size: int, heads: int) -> int:
    """Return the dimension of one attention head. Raises `CorruptModel` if it is not a whole number."""
    if hidden_size % heads:
        raise CorruptModel(
            f"config.json: hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}."
        )
    if hidden_size // heads > MOST_HEAD_DIM:
        raise CorruptModel(
            f"config.json: hidden_size {hidden_size} and num_attention_heads {heads} make heads of more than "
            f"{MOST_HEAD_DIM} dimensions."
        )
    return hidden_size // heads


def check_rotary_heads(size: int, by: str = "hidden_size and num_attention_heads") -> None:
    """Raise `CorruptModel` if heads of this dimension, by the keys `by`, cannot have rotary positions."""
    if size % 2:
        raise CorruptModel(f"config.json: heads of {size} dimensions, by {by}, cannot have rotary positions.")


def _value(config: Settings, key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value
