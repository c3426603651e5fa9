"""Rotary position embeddings (Su et al., 2021), as a `config.json` asks for them.

Releases of transformers wrote the same settings in three ways:

    rope_theta, rope_scaling                     one kind for all layers
    rope_parameters                              the same, in one object
    rope_parameters by type of layer             one object for each type

Source of the rules: transformers 5.23, `modeling_rope_utils.py` and the configurations of the families.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.settings import read_number, refuse_unless

FULL = "full_attention"
SLIDING = "sliding_attention"

_TYPES = ("default", "linear")


@dataclass(frozen=True, slots=True)
class Rope:
    """Frequencies `theta ** (-2i / dim) / factor`, applied to the two halves of a head."""

    theta: float
    factor: float = 1.0


def read_rope(config: Mapping[str, Any], *, theta: float) -> Rope:
    """The one kind that all layers have; `theta` is the family's default.

    Raises `UnsupportedModel` for a scaling that is not built here, and names it.
    """
    refuse_unless(config, {"partial_rotary_factor": (1,)})
    written = config.get("rope_scaling") or config.get("rope_parameters") or {}
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    theta = read_number(config, "rope_theta", theta)
    return _read_one(_require_object(written, key), key, theta)


def read_layered_rope(
    config: Mapping[str, Any], *, thetas: Mapping[str, tuple[str, float]], scaled: tuple[str, ...]
) -> Mapping[str, Rope]:
    """A kind for each type of layer.

    `thetas` says for each type the key that older releases wrote its theta to, and the default; `scaled`
    which types a `rope_scaling` is for. Raises `UnsupportedModel` for what is not built here.
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
        ropes[kind] = _read_one(own, f"rope_parameters.{kind}", read_number(config, theta_key, default))
    return ropes


def _read_one(written: Mapping[str, Any], key: str, theta: float) -> Rope:
    if any(isinstance(value, Mapping) for value in written.values()):
        raise UnsupportedModel(f"config.json: {key} with an object for each type of layer is not supported.")
    names = {str(written[name]) for name in ("rope_type", "type") if written.get(name) is not None}
    name = names.pop() if names else "default"
    if names or name not in _TYPES:
        raise UnsupportedModel(
            f"config.json: {key} of type {', '.join(sorted({name, *names}))} is not supported; "
            f"supported are {', '.join(_TYPES)}."
        )
    refuse_unless(written, {"partial_rotary_factor": (1,)})
    theta = read_number(written, "rope_theta", theta)
    if name == "default":
        return Rope(theta)
    if written.get("factor") is None:
        raise CorruptModel(f"config.json: {key} of type linear needs a factor.")
    return Rope(theta, read_number(written, "factor", 1.0))


def _require_object(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise CorruptModel(f"config.json: {key} must be an object.")
    return value
