"""Reading single values of a `config.json`, so that each family says only which keys it has.

A value that cannot be is a `CorruptModel`, one that is not built here an `UnsupportedModel`; both name
the key. transformers writes `null` for "as usual", so a key that is null counts as absent.
"""

from collections.abc import Mapping
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
    """A whole number of at least `least`."""
    value = _written(config, key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise CorruptModel(f"config.json: {key} must be a whole number of at least {least}.")
    return value


def read_number(config: Mapping[str, Any], key: str, default: float) -> float:
    """A number above 0."""
    value = _written(config, key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise CorruptModel(f"config.json: {key} must be a number above 0.")
    return float(value)


def read_epsilon(config: Mapping[str, Any], key: str, default: float) -> float:
    """A number between 0 and 1."""
    value = read_number(config, key, default)
    if value >= 1:
        raise CorruptModel(f"config.json: {key} must be a number between 0 and 1.")
    return value


def read_flag(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """True or false."""
    value = _written(config, key, default)
    if not isinstance(value, bool):
        raise CorruptModel(f"config.json: {key} must be true or false.")
    return value


def read_activation(config: Mapping[str, Any], key: str, default: str) -> str:
    """The name of an activation that graphs can build."""
    value = _written(config, key, default)
    if value not in ACTIVATIONS:
        raise UnsupportedModel(
            f"config.json: {key} {value!r} is not supported; supported are {', '.join(sorted(ACTIVATIONS))}."
        )
    return str(value)


def read_token_id(config: Mapping[str, Any], key: str, default: int | None) -> int | None:
    """The id of a token; a null that is written means that there is none."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise CorruptModel(f"config.json: {key} must be a whole number or null.")
    return value


def refuse_unless(config: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuse a model where a key is present, not null, and not one of the allowed values.

    For keys that change rows and have values that are not built here. `False` stands for 0 too.
    """
    for key, values in allowed.items():
        value = config.get(key)
        if value is not None and value not in values:
            hint = f"only {', '.join(map(repr, values))} is" if values else "remove it if it has no effect"
            raise UnsupportedModel(f"config.json: {key} {value!r} is not supported; {hint}.")


def head_size(hidden_size: int, heads: int) -> int:
    """Columns of one attention head, where heads share the hidden size evenly."""
    if hidden_size % heads:
        raise CorruptModel(
            f"config.json: hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}."
        )
    return hidden_size // heads


def _written(config: Mapping[str, Any], key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value
