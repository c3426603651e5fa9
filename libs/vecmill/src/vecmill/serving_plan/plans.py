"""Plans and their measured accuracy: their names in reports, and their JSON."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.config_fields import MOST_TOKENS, check_text, check_whole_number
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.vectors import cosine_at


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The differences between a plan's outputs and those of `reference`, over `texts` texts or pairs.

    `largest_difference` is over all values, and `scale` is the largest value of the reference. `cosine_min`
    and `cosine_mean` are over embeddings, `None` if the outputs are scores. `kept` is recall@10 of nearest
    neighbours or best documents, or the share of equal best labels, `None` if there were too few texts.
    """

    reference: str
    texts: int
    largest_difference: float
    scale: float
    cosine_min: float | None
    cosine_mean: float | None
    kept: float | None

    @property
    def worst_cosine(self) -> float:
        """The cosine of the worst text. For scores, `cosine_at` computes it from the largest difference."""
        if self.cosine_min is not None:
            return self.cosine_min
        return cosine_at(self.largest_difference, self.scale)


def kind_of(plan: EnginePlan) -> tuple[str, str | None, str | None]:
    """Return the kind of a plan: engine, device and precision, which determine the accuracy."""
    return plan.engine, plan.device, plan.precision


def describe_plan(plan: EnginePlan) -> str:
    """Return a short description: `openvino bf16, calls on 1 or 2 cores, 512 tokens, lengths in 8s`."""
    engine, device, precision = kind_of(plan)
    parts = [f"{engine} {precision or ''}".strip() + (f" on {device}" if device not in (None, "cpu") else "")]
    if plan.lane_widths:
        widths = " or ".join(map(str, plan.lane_widths))
        parts.append(f"calls on {widths} {'core' if plan.lane_widths == (1,) else 'cores'}")
    if plan.max_batch_tokens is not None:
        parts.append(f"{plan.max_batch_tokens} tokens")
    if plan.length_multiple is not None:
        parts.append(f"lengths in {plan.length_multiple}s")
    return ", ".join(parts)


JsonObject = dict[str, Any]

MOST_CORES = 4096


def write_plan(plan: EnginePlan) -> JsonObject:
    """Convert a plan to a JSON object."""
    return {**asdict(plan), "lane_widths": list(plan.lane_widths)}


def read_plan(document: Mapping[str, Any], name: str = "plan") -> EnginePlan:
    """Convert a JSON object to a plan.

    Raises `CorruptModel`, whose message begins with `name`, for an invalid value, and `TypeError` for one
    that plans do not have.
    """
    device = document.get("device")
    widths = document.get("lane_widths")
    if not isinstance(widths, list):
        raise CorruptModel(f"{name}.lane_widths must be a list.")
    counts = {
        key: None if document.get(key) is None else check_whole_number(document.get(key), f"{name}.{key}")
        for key in ("length_multiple", "max_batch_tokens")
    }
    read = {
        "engine": check_text(document.get("engine"), f"{name}.engine"),
        "precision": _read_precision(document.get("precision"), f"{name}.precision"),
        "device": None if device is None else check_text(device, f"{name}.device"),
        "lane_widths": tuple(
            check_whole_number(width, f"{name}.lane_widths", most=MOST_CORES) for width in widths
        ),
        **counts,
    }
    return EnginePlan(**{**document, **read})


def _read_precision(value: object, name: str) -> Precision | None:
    if value is None:
        return None
    if check_text(value, name) not in tuple(Precision):
        raise CorruptModel(f"{name} must be one of {', '.join(Precision)}.")
    return Precision(str(value))


def read_accuracy(document: Mapping[str, Any], name: str) -> Accuracy:
    """Convert a JSON object to an accuracy. Raises the same errors as `read_plan`."""
    optional = ("cosine_min", "cosine_mean", "kept")
    read = {
        "reference": check_text(document.get("reference"), f"{name}.reference"),
        "texts": check_whole_number(document.get("texts"), f"{name}.texts", 0, MOST_TOKENS),
        "largest_difference": _check_float(document.get("largest_difference"), f"{name}.largest_difference"),
        "scale": _check_float(document.get("scale"), f"{name}.scale"),
        **{
            key: None if document.get(key) is None else _check_float(document.get(key), f"{name}.{key}")
            for key in optional
        },
    }
    return Accuracy(**{**document, **read})


def _check_float(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise CorruptModel(f"{name} must be a number.")
    return float(value)


def write_accuracy(accuracy: Accuracy) -> JsonObject:
    """Convert an accuracy to a JSON object. JSON has no infinity, so infinity becomes the largest float."""
    return {
        name: min(value, sys.float_info.max) if isinstance(value, float) else value
        for name, value in asdict(accuracy).items()
    }
