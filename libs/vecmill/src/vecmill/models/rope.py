"""Rotary position embeddings (Su et al., 2021), as a `config.json` asks for them.

Releases of transformers wrote the same settings in three ways:

    rope_theta, rope_scaling                     one kind for all layers
    rope_parameters                              the same, in one object
    rope_parameters by type of layer             one object for each type

Scaling stretches what a model was trained on over longer texts. How many tokens that was is written as
`original_max_position_embeddings`; `max_position_embeddings` is the longest text that we serve, and for the
type "dynamic" the end of what needs no scaling, so that it is never scaled here.

Source of the rules: transformers 5.23, `modeling_rope_utils.py` and the configurations of the families.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.settings import read_flag, read_number, read_size, refuse_unless

FULL = "full_attention"
SLIDING = "sliding_attention"

_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Slow frequencies are divided by `factor`, fast ones kept, those between blended (Llama 3.1).

    Slow ones turn fewer than `low` times over `trained_tokens`, fast ones more than `high` times.
    """

    factor: float
    low: float
    high: float
    trained_tokens: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """As Llama 3's, blended by the index of a frequency (Peng et al., 2023, YaRN).

    The blend goes from the one that turns `fast` times to the one that turns `slow` times, both rounded
    outwards with `rounded`. Cosines and sines are multiplied by `attention`.
    """

    factor: float
    fast: float
    slow: float
    trained_tokens: int
    attention: float
    rounded: bool = True


@dataclass(frozen=True, slots=True)
class LongScaling:
    """Each frequency is divided by its own factor (Ding et al., 2024, LongRoPE).

    Texts of more than `trained_tokens` have other factors. Cosines and sines are multiplied by `attention`.
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
    """The one kind that all layers have; `theta` is the family's default.

    `positions` is the longest input. Raises `UnsupportedModel` for a scaling that is not built here, and
    names it.
    """
    refuse_unless(config, {"partial_rotary_factor": (1,)})
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    written = _require_object(config.get(key) or {}, key)
    trained = config.get("original_max_position_embeddings")
    if trained is not None:
        written = {**written, "original_max_position_embeddings": trained}
    return _Written(key, written, positions).rope(read_number(config, "rope_theta", theta))


def read_layered_rope(
    config: Mapping[str, Any],
    *,
    thetas: Mapping[str, tuple[str, float]],
    scaled: tuple[str, ...],
    positions: int,
) -> Mapping[str, Rope]:
    """A kind for each type of layer.

    `thetas` says for each type the key that older releases wrote its theta to, and the default; `scaled`
    which types a `rope_scaling` is for; `positions` is the longest input. Raises `UnsupportedModel` for what
    is not built here.
    """
    refuse_unless(config, {"partial_rotary_factor": (1,)})
    written = _require_object(config.get("rope_parameters") or {}, "rope_parameters")
    scaling = _require_object(config.get("rope_scaling") or {}, "rope_scaling")
    if scaling.get("type") is not None and scaling.get("rope_type") is None:
        # transformers takes no notice of it here, which can hardly be what was meant.
        raise UnsupportedModel("config.json: rope_scaling with a type, but no rope_type, is not supported.")
    if not set(written) <= set(thetas):
        raise UnsupportedModel(
            "config.json: rope_parameters is not supported unless it has one object for each of "
            f"{', '.join(thetas)}."
        )
    ropes = {}
    for kind, (theta_key, default) in thetas.items():
        own = _require_object(written.get(kind) or {}, f"rope_parameters.{kind}")
        own = {**own, **scaling} if kind in scaled else own
        # transformers looks for it one level too high, and so never sees it.
        refuse_unless(own, {"truncate": (True,)})
        written_one = _Written(f"rope_parameters.{kind}", own, positions)
        ropes[kind] = written_one.rope(read_number(config, theta_key, default))
    return ropes


@dataclass(frozen=True, slots=True)
class _Written:
    """One object of settings, called `key` in messages; `positions` is the longest input."""

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
            str(self.values[name]) for name in ("rope_type", "type") if self.values.get(name) is not None
        }
        name = names.pop() if names else "default"
        if names or name not in _TYPES:
            raise UnsupportedModel(
                f"config.json: {self.key} of type {', '.join(sorted({name, *names}))} is not supported; "
                f"supported are {', '.join(_TYPES)}."
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

        # A weight of 0 counts as none.
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
        if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
            raise CorruptModel(f"config.json: {self.key}.{key} must list numbers, one for each frequency.")
        return tuple(map(float, values))

    def _factor(self) -> float:
        """A null stands for how much longer inputs may be than what the model was trained on."""
        if self.values.get("factor") is None:
            return self.positions / self._trained_tokens()
        return self._number("factor")

    def _trained_tokens(self) -> int:
        return read_size(self.values, "original_max_position_embeddings", self.positions, least=2)

    def _number(self, key: str) -> float:
        if self.values.get(key) is None:
            raise CorruptModel(f"config.json: {self.key} of type {self._type()} needs a {key}.")
        return read_number(self.values, key, 1)


def _require_object(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise CorruptModel(f"config.json: {key} must be an object.")
    return value
