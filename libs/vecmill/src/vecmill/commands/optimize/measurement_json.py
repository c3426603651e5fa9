"""Conversion of measurements to and from JSON objects, for the journal and worker processes."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vecmill.commands.optimize.measurements import Pass, Screening, Speed
from vecmill.serving_plan.plans import Accuracy, JsonObject, read_plan, write_accuracy, write_plan


def write_screening(screening: Screening) -> JsonObject:
    """Convert a screening to a JSON object."""
    return {**asdict(screening), "accuracy": write_accuracy(screening.accuracy)}


def read_screening(document: Mapping[str, Any]) -> Screening:
    """Convert a JSON object to a screening."""
    return Screening(document["load_s"], document["memory_mb"], Accuracy(**document["accuracy"]))


def write_pass(done: Pass) -> JsonObject:
    """Convert a pass to a JSON object."""
    return {
        "number": done.number,
        "before": asdict(done.before),
        "after": asdict(done.after),
        "speeds": [{"plan": write_plan(plan), **asdict(speed)} for plan, speed in done.speeds.items()],
        "failures": [{"plan": write_plan(plan), "reason": why} for plan, why in done.failures.items()],
    }


def read_pass(document: Mapping[str, Any]) -> Pass:
    """Convert a JSON object to a pass."""
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
