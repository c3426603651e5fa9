"""Values of this package as JSON documents, and back. Used between processes and in files."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vecmill.plan import EnginePlan, Precision
from vecmill.tuning.figures import Accuracy, Admission, Pass, Speed

Document = dict[str, Any]


def write_plan(plan: EnginePlan) -> Document:
    """A plan as a document."""
    return {**asdict(plan), "lane_widths": list(plan.lane_widths)}


def read_plan(document: Mapping[str, Any]) -> EnginePlan:
    """A plan of a document. Raises `ValueError` or `TypeError` for one that is none."""
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


def write_accuracy(accuracy: Accuracy) -> Document:
    """An accuracy as a document. JSON knows no infinity, so one becomes the largest number there is."""
    return {
        name: min(value, sys.float_info.max) if isinstance(value, float) else value
        for name, value in asdict(accuracy).items()
    }


def write_admission(admission: Admission) -> Document:
    """An admission as a document."""
    return {**asdict(admission), "accuracy": write_accuracy(admission.accuracy)}


def read_admission(document: Mapping[str, Any]) -> Admission:
    """An admission of a document."""
    return Admission(document["load_s"], document["memory_mb"], Accuracy(**document["accuracy"]))


def write_pass(done: Pass) -> Document:
    """A pass as a document."""
    return {
        "number": done.number,
        "before": asdict(done.before),
        "after": asdict(done.after),
        "speeds": [{"plan": write_plan(plan), **asdict(speed)} for plan, speed in done.speeds.items()],
        "failures": [{"plan": write_plan(plan), "reason": why} for plan, why in done.failures.items()],
    }


def read_pass(document: Mapping[str, Any]) -> Pass:
    """A pass of a document."""
    return Pass(
        number=document["number"],
        before=Speed(**document["before"]),
        after=Speed(**document["after"]),
        speeds={
            read_plan(entry["plan"]): Speed(entry["texts_per_s"], entry["latency_s"])
            for entry in document["speeds"]
        },
        failures={read_plan(entry["plan"]): entry["reason"] for entry in document["failures"]},
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _require(condition: bool, name: str) -> None:
    if not condition:
        raise ValueError(f"{name} has a value that it cannot have")
