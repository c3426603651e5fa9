"""Reads and checks the values of a `config.json`, for the config classes of the architectures.

A config class declares its fields with `size`, `epsilon`, `activation` or `flag`, each with the default of
transformers, and `read_fields` reads all fields by name. Each other function `read_...` reads one value. An
invalid value raises `CorruptModel`, an unsupported value `UnsupportedModel`. Both messages name the key.
transformers writes `null` for a default, so a null key counts as absent.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel

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


def read_size(config: Mapping[str, Any], key: str, default: int, *, least: int = 1) -> int:
    """Read a whole number of at least `least`."""
    return check_whole_number(_value(config, key, default), f"config.json: {key}", least)


def check_whole_number(value: object, name: str, least: int = 1) -> int:
    """Return `value`, checked. Raises `CorruptModel`, whose message begins with `name`, if it is invalid."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise CorruptModel(f"{name} must be a whole number of at least {least}.")
    return value


def read_number(config: Mapping[str, Any], key: str, default: float) -> float:
    """Read a number above 0."""
    value = _value(config, key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise CorruptModel(f"config.json: {key} must be a number above 0.")
    return float(value)


def read_epsilon(config: Mapping[str, Any], key: str, default: float) -> float:
    """Read a number between 0 and 1."""
    value = read_number(config, key, default)
    if value >= 1:
        raise CorruptModel(f"config.json: {key} must be a number between 0 and 1.")
    return value


def read_flag(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Read true or false."""
    value = _value(config, key, default)
    if not isinstance(value, bool):
        raise CorruptModel(f"config.json: {key} must be true or false.")
    return value


def read_activation(config: Mapping[str, Any], key: str, default: str) -> str:
    """Read the name of an activation that graphs can build."""
    value = _value(config, key, default)
    if value not in ACTIVATIONS:
        raise UnsupportedModel(
            f"config.json: {key} {value!r} is not supported; supported are {', '.join(sorted(ACTIVATIONS))}."
        )
    return str(value)


def read_token_id(config: Mapping[str, Any], key: str, default: int | None) -> int | None:
    """Read the id of a token; `None` if the value is null."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise CorruptModel(f"config.json: {key} must be a whole number or null.")
    return value


def size(default: int, *, least: int = 1) -> Any:
    """Declare a field that is a whole number of at least `least`."""
    return _declare(lambda config, key: read_size(config, key, default, least=least))


def epsilon(default: float) -> Any:
    """Declare a field that is a number between 0 and 1."""
    return _declare(lambda config, key: read_epsilon(config, key, default))


def activation(default: str) -> Any:
    """Declare a field that is the name of an activation."""
    return _declare(lambda config, key: read_activation(config, key, default))


def flag(default: bool) -> Any:
    """Declare a field that is true or false."""
    return _declare(lambda config, key: read_flag(config, key, default=default))


def read_fields(kind: type, config: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """Read the declared fields of the dataclass `kind`. Return them with the `given` fields.

    Raises `CorruptModel` for invalid values, `UnsupportedModel` for unsupported ones.
    """
    found = {
        one.name: one.metadata["read"](config, one.name)
        for one in fields(kind)
        if "read" in one.metadata and one.name not in given
    }
    return {**found, **given}


def _declare(read: Callable[[Mapping[str, Any], str], Any]) -> Any:
    return field(metadata={"read": read})


def refuse_unless(config: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise `UnsupportedModel` if a key is present, not null, and not one of its `allowed` values.

    Used for keys that change the outputs and have unsupported values. `False` also allows 0.
    """
    for key, values in allowed.items():
        value = config.get(key)
        if value is not None and value not in values:
            hint = f"only {', '.join(map(repr, values))} is" if values else "remove it if it has no effect"
            raise UnsupportedModel(f"config.json: {key} {value!r} is not supported; {hint}.")


def head_size(hidden_size: int, heads: int) -> int:
    """Return the dimension of one attention head. Raises `CorruptModel` if it is not a whole number."""
    if hidden_size % heads:
        raise CorruptModel(
            f"config.json: hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}."
        )
    return hidden_size // heads


def _value(config: Mapping[str, Any], key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value
