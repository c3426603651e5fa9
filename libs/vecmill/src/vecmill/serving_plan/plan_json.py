"""Conversion of plans and accuracies to and from JSON objects, for files and worker processes."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vecmill.serving_plan.accuracy import Accuracy
from vecmill.values.engine_plan import EnginePlan, Precision

JsonObject = dict[str, Any]


def write_plan(plan: EnginePlan) -> JsonObject:
    """Convert a plan to a JSON object."""
    return {**asdict(plan), "lane_widths": list(plan.lane_widths)}


def read_plan(document: Mapping[str, Any]) -> EnginePlan:
    """Convert a JSON object to a plan. Raises `KeyError`, `TypeError` or `ValueError` if invalid."""
    precision = document["precision"]
    plan = EnginePlan(
        **{
            **document,
            "precision": None if precision is None else Precision(precision),
            "lane_widths": tuple(document["lane_widths"]),
        }
    )
    _require(isinstance(plan.engine, str), "engine")
    _require(isinstance(plan.device, str | None), "device")
    _require(all(_is_count(width) for width in plan.lane_widths), "lane_widths")
    for name in ("length_multiple", "max_batch_tokens"):
        value = getattr(plan, name)
        _require(value is None or _is_count(value), name)
    return plan


def write_accuracy(accuracy: Accuracy) -> JsonObject:
    """Convert an accuracy to a JSON object. JSON has no infinity, so infinity becomes the largest float."""
    return {
        name: min(value, sys.float_info.max) if isinstance(value, float) else value
        for name, value in asdict(accuracy).items()
    }


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _require(condition: bool, name: str) -> None:
    if not condition:
        raise ValueError(f"{name} has an invalid value")
