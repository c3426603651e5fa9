"""Reads the rotary position embeddings (Su et al., 2021) of a `config.json`.

Releases of transformers wrote the same settings in three ways:

    rope_theta, rope_scaling                     the same for all layers
    rope_parameters                              the same for all layers, in one object
    rope_parameters by type of layer             one object for each type

Scaling stretches the trained positions over longer texts. `original_max_position_embeddings` is the number of
trained positions, `max_position_embeddings` the longest input. The type "dynamic" scales only beyond
`max_position_embeddings`, by the longest text of a batch. Longer texts are cut, so here it never scales.

Source of the rules: transformers 5.23, `modeling_rope_utils.py` and the configurations of the models.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_HEAD_DIM,
    MOST_TOKENS,
    check_number,
    check_text,
    read_flag,
    read_mapping,
    read_number,
    read_size,
    refuse_unless,
)
from vecmill.values.messages import show_name

FULL = "full_attention"
SLIDING = "sliding_attention"

_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """The scaling of Llama 3.1: slow frequencies are divided by `factor`, fast ones kept, others blended.

    Slow frequencies rotate fewer than `low` times over `trained_tokens`, fast ones more than `high` times.
    """

    factor: float
    low: float
    high: float
    trained_tokens: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """The scaling of YaRN (Peng et al., 2023): `Llama3Scaling`, blended by the index of a frequency.

    Interpolation begins at the frequency that rotates `fast` times and ends at the one that rotates `slow`
    times; with `rounded` both indices are rounded outwards. Cosines and sines are multiplied by `attention`.
    """

    factor: float
    fast: float
    slow: float
    trained_tokens: int
    attention: float
    rounded: bool = True


@dataclass(frozen=True, slots=True)
class LongScaling:
    """The scaling of LongRoPE (Ding et al., 2024): each frequency is divided by its own factor.

    `long` are the factors of texts of more than `trained_tokens`, `short` those of other texts. Cosines and
    sines are multiplied by `attention`.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    trained_tokens: int
    attention: float


@dataclass(frozen=True, slots=True)
class Rope:
    """Frequencies `theta ** (-2i / dim) / factor`, scaled, applied to the two halves of a head."""

    theta: float
    factor: float = 1.0
    scaling: Llama3Scaling | YarnScaling | LongScaling | None = None


def read_rope(config: Mapping[str, Any], *, theta: float, positions: int) -> Rope:
    """Read the settings that all layers share; `theta` is the architecture's default.

    `positions` is the longest input. Raises `UnsupportedModel` for an unsupported scaling, and names it.
    """
    refuse_unless(config, {"partial_rotary_factor": (1,)})
    key = "rope_scaling" if read_mapping(config, "rope_scaling") else "rope_parameters"
    values = read_mapping(config, key)
    trained = config.get("original_max_position_embeddings")
    if trained is not None:
        values = {**values, "original_max_position_embeddings": trained}
    return _RopeSettings(key, values, positions).rope(read_number(config, "rope_theta", theta))


def scales_with_length(config: Mapping[str, Any]) -> bool:
    """Return whether a `config.json` names the type "dynamic", for any type of layer."""
    found = [config.get(key) for key in ("rope_scaling", "rope_parameters")]
    objects = [one for one in found if isinstance(one, Mapping)]
    objects += [part for one in objects for part in one.values() if isinstance(part, Mapping)]
    return any("dynamic" in (one.get("rope_type"), one.get("type")) for one in objects)


def read_rope_by_layer_type(
    config: Mapping[str, Any],
    *,
    thetas: Mapping[str, tuple[str, float]],
    scaled: tuple[str, ...],
    positions: int,
) -> Mapping[str, Rope]:
    """Read the settings of each type of layer.

    `thetas` has for each type a default theta, and the key of theta in older releases. `scaled` are the types
    that `rope_scaling` applies to. `positions` is the longest input. Raises `UnsupportedModel` for
    unsupported settings.
    """
    refuse_unless(config, {"partial_rotary_factor": (1,)})
    by_type = read_mapping(config, "rope_parameters")
    scaling = read_mapping(config, "rope_scaling")
    if scaling.get("type") is not None and scaling.get("rope_type") is None:
        # transformers ignores such a rope_scaling, which is hardly what its author meant.
        raise UnsupportedModel("config.json: rope_scaling with a type, but no rope_type, is not supported.")
    if not set(by_type) <= set(thetas):
        raise UnsupportedModel(
            "config.json: rope_parameters is not supported unless it has one object for each of "
            f"{', '.join(thetas)}."
        )
    ropes = {}
    for kind, (theta_key, default) in thetas.items():
        values = read_mapping(by_type, kind, file="config.json: rope_parameters")
        values = {**values, **scaling} if kind in scaled else values
        # transformers looks for `truncate` one level higher, and so never finds it.
        refuse_unless(values, {"truncate": (True,)})
        settings = _RopeSettings(f"rope_parameters.{kind}", values, positions)
        ropes[kind] = settings.rope(read_number(config, theta_key, default))
    return ropes


@dataclass(frozen=True, slots=True)
class _RopeSettings:
    """One object of settings; error messages name `key`. `positions` is the longest input."""

    key: str
    values: Mapping[str, Any]
    positions: int

    def rope(self, theta: float) -> Rope:
        refuse_unless(self.values, {"partial_rotary_factor": (1,)})
        theta = read_number(self.values, "rope_theta", theta)
        match self._type():
            case "linear":
                return Rope(theta, self._number("factor"))
            case "dynamic":
                self._number("factor")
                return Rope(theta)
            case "llama3":
                return Rope(theta, scaling=self._llama3())
            case "yarn":
                if theta == 1:  # every frequency would be the same
                    raise CorruptModel(f"config.json: rope_theta of {self.key} must not be 1 with yarn.")
                return Rope(theta, scaling=self._yarn())
            case "longrope":
                return Rope(theta, scaling=self._long())
        return Rope(theta)

    def _type(self) -> str:
        if any(isinstance(value, Mapping) for value in self.values.values()):
            raise UnsupportedModel(
                f"config.json: {self.key} with an object for each type of layer is not supported."
            )
        names = {
            check_text(self.values[name], f"config.json: {self.key}.{name}")
            for name in ("rope_type", "type")
            if self.values.get(name) is not None
        }
        name = names.pop() if names else "default"
        if names or name not in _TYPES:
            found = ", ".join(map(show_name, sorted({name, *names})))
            raise UnsupportedModel(
                f"config.json: {self.key} of type {found} is not supported; supported: {', '.join(_TYPES)}."
            )
        return name

    def _llama3(self) -> Llama3Scaling:
        low, high = self._number("low_freq_factor"), self._number("high_freq_factor")
        if high <= low:
            raise CorruptModel(f"config.json: {self.key}.high_freq_factor must be above low_freq_factor.")
        return Llama3Scaling(self._number("factor"), low, high, self._trained_tokens())

    def _yarn(self) -> YarnScaling:
        factor = self._factor()
        return YarnScaling(
            factor,
            fast=read_number(self.values, "beta_fast", 32),
            slow=read_number(self.values, "beta_slow", 1),
            trained_tokens=self._trained_tokens(),
            attention=read_number(self.values, "attention_factor", self._yarn_attention(factor)),
            rounded=read_flag(self.values, "truncate", default=True),
        )

    def _yarn_attention(self, factor: float) -> float:
        def sharpen(weight: float) -> float:
            return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

        # 0 counts as absent.
        own, all_dim = self.values.get("mscale"), self.values.get("mscale_all_dim")
        if own and all_dim:
            one, other = (read_number(self.values, key, 1) for key in ("mscale", "mscale_all_dim"))
            return sharpen(one) / sharpen(other)
        return sharpen(1)

    def _long(self) -> LongScaling:
        factor, trained = self._factor(), self._trained_tokens()
        attention = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
        return LongScaling(
            self._factors("short_factor"),
            self._factors("long_factor"),
            trained,
            read_number(self.values, "attention_factor", attention),
        )

    def _factors(self, key: str) -> tuple[float, ...]:
        values = self.values.get(key)
        if not isinstance(values, list) or len(values) > MOST_HEAD_DIM:
            raise CorruptModel(f"config.json: {self.key}.{key} must list numbers, one for each frequency.")
        name = f"config.json: {self.key}.{key}"
        return tuple(check_number(value, f"{name}[{index}]") for index, value in enumerate(values))

    def _factor(self) -> float:
        """Return the factor; null stands for the longest input divided by the trained positions."""
        if self.values.get("factor") is None:
            return self.positions / self._trained_tokens()
        return self._number("factor")

    def _trained_tokens(self) -> int:
        return read_size(
            self.values, "original_max_position_embeddings", self.positions, least=2, most=MOST_TOKENS
        )

    def _number(self, key: str) -> float:
        if self.values.get(key) is None:
            raise CorruptModel(f"config.json: {self.key} of type {self._type()} needs a {key}.")
        return read_number(self.values, key, 1)
