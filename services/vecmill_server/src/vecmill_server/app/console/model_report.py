"""The report on the served models: facts, prompts, accuracy, and the measurements of `vecmill optimize`."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vecmill.errors import NotReady, VecmillError
from vecmill.models import fingerprint_model
from vecmill.models.directory import read_object
from vecmill.models.location import MANIFEST_FILE
from vecmill.serving_plan.plans import describe_plan, read_plan
from vecmill_server.base.catalog import ServedModel


def report_model(model: ServedModel) -> dict[str, Any]:
    """Return the report on one model. A model that is not loaded has only its state."""
    facts: dict[str, Any] = {"state": str(model.state)}
    report: dict[str, Any] = {
        "name": model.name,
        "fingerprint": None,
        "facts": facts,
        "prompts": [],
        "accuracy": None,
        "optimized": None,
    }
    if model.reason is not None:
        facts["reason"] = model.reason
    try:
        description, info, config = model.mill.description, model.mill.info, model.mill.config
    except NotReady:
        return report
    facts |= {
        "task": description.task,
        "architecture": description.architecture,
        "dimensions": info.dim,
        "longest text, tokens": description.max_tokens,
        "engine": info.name,
        "precision": info.precision,
        "device": info.device,
        "cores of a call": list(info.lane_widths),
        "tokens of a full batch": model.mill.batch_tokens,
        "texts in a request, at most": config.inputs.max_inputs,
        "texts that may wait": config.queue.max_queue_texts,
        "longest wait of an interactive request, s": config.queue.target_wait_s,
    }
    with suppress(VecmillError):  # its files were removed since
        report["fingerprint"] = fingerprint_model(description)
    report["prompts"] = [{"name": name, "text": text} for name, text in description.prompts.items()]
    accuracy = model.mill.accuracy
    report["accuracy"] = None if accuracy is None else asdict(accuracy)
    report["optimized"] = _read_measurements(description.directory)
    return report


def _read_measurements(directory: Path) -> dict[str, Any] | None:
    """Return the measurements in the manifest of a directory; `None` if there is none that can be read."""
    try:
        document = read_object(directory, MANIFEST_FILE)
        return None if document is None else _measurements(document)
    except (VecmillError, KeyError, TypeError, ValueError):
        return None


def _measurements(document: Mapping[str, Any]) -> dict[str, Any]:
    chosen = document["plan"]
    return {
        "reason": document["reason"],
        "machine": f"{document['machine']['processor_model']}, {document['machine']['cores']} cores",
        "texts": document["texts"],
        "plans": [_plan(entry, is_chosen=entry["plan"] == chosen) for entry in document["candidates"]],
    }


def _plan(entry: Mapping[str, Any], *, is_chosen: bool) -> dict[str, Any]:
    speed, accuracy = entry["speed"], entry["accuracy"]
    worst = None if accuracy is None else accuracy["cosine_min"]
    return {
        "name": describe_plan(read_plan(entry["plan"])),
        "is_chosen": is_chosen,
        "is_safe": bool(entry["is_safe"]),
        "texts_per_s": None if speed is None else speed["texts_per_s"],
        "single_ms": None if speed is None else 1000 * speed["latency_s"],
        "loss": None if worst is None else 1 - worst,
        "memory_mb": entry["memory_mb"],
        "failure": entry["failure"],
    }
