"""`vecmill.json`, what `vecmill optimize` writes beside a model: how to serve it, and what that rests on.

{
  "schema": 1,
  "model": "all-MiniLM-L6-v2",           the name to serve under
  "model_fingerprint": "...",            of settings, tokenizer and weights
  "machine": {...},                      where it was measured, with a fingerprint
  "versions": {"vecmill": "0.1.0", ...},
  "plan": {"engine": "onnx", ...},       what to serve with
  "reason": "...",
  "noise": 0.01,
  "demand": {...},                       what was asked for
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
from vecmill.plan import EnginePlan
from vecmill.tuning.documents import read_plan
from vecmill.tuning.figures import Accuracy, kind_of

MANIFEST_FILE = "vecmill.json"
PREPARED_FOLDER = "prepared"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """What serving needs of a manifest. `accuracies` has those that were measured, by plan."""

    model: str
    model_fingerprint: str
    machine_fingerprint: str
    versions: Mapping[str, str]
    plan: EnginePlan
    accuracies: Mapping[EnginePlan, Accuracy]

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The manifest in `directory`, `None` if there is none.

        Raises `CorruptModel` if it is broken, `UnsupportedModel` if another release wrote it.
        """
        document = read_object(directory, MANIFEST_FILE)
        if document is None:
            return None
        if document.get("schema") != SCHEMA:
            raise UnsupportedModel(
                f"{directory / MANIFEST_FILE}: schema is {document.get('schema')!r}, and this release reads "
                f"{SCHEMA}. Optimise the model again."
            )
        try:
            return cls._of(document)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptModel(
                f"{directory / MANIFEST_FILE} is not what vecmill optimize writes ({error}). "
                "Optimise the model again."
            ) from error

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> Self:
        name = document["model"]
        if not isinstance(name, str) or not name:
            raise ValueError("model must be a name")
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
        """The accuracy that was measured of a plan's engine, device and precision."""
        alike = (found for other, found in self.accuracies.items() if kind_of(other) == kind_of(plan))
        return self.accuracies.get(plan) or next(alike, None)
