"""The manifest `vecmill.json` of an optimised directory: the plan of the served model, and measurements.

{
  "schema": 1,
  "model": "all-MiniLM-L6-v2",           name of the served model
  "model_fingerprint": "...",            hash of settings, tokenizer and weights
  "machine": {...},                      the measured machine, with its fingerprint
  "versions": {"vecmill": "0.1.0", ...},
  "plan": {"engine": "onnx", ...},       the chosen plan
  "reason": "...",
  "noise": 0.01,
  "demand": {...},                       the requirements of the user
  "candidates": [{"plan": ..., "speed": ..., "ratio": ..., "accuracy": ..., ...}, ...],
  "left_out": {"openvino": "not installed: ..."}
}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.directory import read_object
from vecmill.models.location import MANIFEST_FILE
from vecmill.serving_plan.accuracy import Accuracy, kind_of
from vecmill.serving_plan.plan_json import read_plan
from vecmill.values.engine_plan import EnginePlan

PREPARED_FOLDER = "prepared"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The entries of a manifest that are used at load. `accuracies` maps plans to measured accuracies."""

    model: str
    model_fingerprint: str
    machine_fingerprint: str
    versions: Mapping[str, str]
    plan: EnginePlan
    accuracies: Mapping[EnginePlan, Accuracy]

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Read the manifest in `directory`, `None` if the file is missing.

        Raises `CorruptModel` for a broken manifest, `UnsupportedModel` for the schema of another release.
        """
        document = read_object(directory, MANIFEST_FILE)
        if document is None:
            return None
        if document.get("schema") != SCHEMA:
            raise UnsupportedModel(
                f"{directory / MANIFEST_FILE}: schema is {document.get('schema')!r}, but this release reads "
                f"schema {SCHEMA}. Optimise the model again."
            )
        try:
            return cls._of(document)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptModel(
                f"{directory / MANIFEST_FILE} is not a manifest of vecmill optimize ({error}). "
                "Optimise the model again."
            ) from error

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> Self:
        name = document["model"]
        if not isinstance(name, str) or not name:
            raise ValueError("model must be a non-empty string")
        accuracies = {
            read_plan(entry["plan"]): Accuracy(**entry["accuracy"])
            for entry in document["candidates"]
            if entry["accuracy"] is not None
        }
        return cls(
            model=name,
            model_fingerprint=document["model_fingerprint"],
            machine_fingerprint=document["machine"]["fingerprint"],
            versions=dict(document["versions"]),
            plan=read_plan(document["plan"]),
            accuracies=accuracies,
        )

    def accuracy_of(self, plan: EnginePlan) -> Accuracy | None:
        """Return the measured accuracy of a plan, or of a plan of the same kind; `None` if not measured."""
        alike = (found for other, found in self.accuracies.items() if kind_of(other) == kind_of(plan))
        return self.accuracies.get(plan) or next(alike, None)
