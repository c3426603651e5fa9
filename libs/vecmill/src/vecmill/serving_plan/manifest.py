"""The manifest `vecmill.json` of an optimised directory: its plan, and what was measured where.

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

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from vecmill.engines import ENGINES
from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.hardware.cores import available_cores
from vecmill.hardware.processor import processor_model, processor_name
from vecmill.models.config_fields import check_text, read_mapping
from vecmill.models.directory import read_object
from vecmill.models.location import MANIFEST_FILE
from vecmill.serving_plan.plans import Accuracy, kind_of, read_accuracy, read_plan
from vecmill.values.engine_plan import EnginePlan
from vecmill.values.messages import show

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
                f"{directory / MANIFEST_FILE}: schema is {show(document.get('schema'))}, but this release "
                f"reads schema {SCHEMA}. Optimise the model again."
            )
        try:
            return cls._of(document, f"{directory / MANIFEST_FILE}")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptModel(
                f"{directory / MANIFEST_FILE} is not a manifest of vecmill optimize ({one_line(error)}). "
                "Optimise the model again."
            ) from error

    @classmethod
    def _of(cls, document: Mapping[str, Any], file: str) -> Self:
        name = check_text(document.get("model"), f"{file}: model")
        if not name:
            raise ValueError("model must be a non-empty string")
        versions = read_mapping(document, "versions", file=file)
        machine = read_mapping(document, "machine", file=file)
        return cls(
            model=name,
            model_fingerprint=check_text(document.get("model_fingerprint"), f"{file}: model_fingerprint"),
            machine_fingerprint=check_text(machine.get("fingerprint"), f"{file}: machine.fingerprint"),
            versions={key: check_text(value, f"{file}: versions.{key}") for key, value in versions.items()},
            plan=read_plan(read_mapping(document, "plan", file=file), f"{file}: plan"),
            accuracies=dict(_read_accuracies(document, file)),
        )

    def accuracy_of(self, plan: EnginePlan) -> Accuracy | None:
        """Return the measured accuracy of a plan, or of a plan of the same kind; `None` if not measured."""
        alike = (found for other, found in self.accuracies.items() if kind_of(other) == kind_of(plan))
        return self.accuracies.get(plan) or next(alike, None)


def _read_accuracies(document: Mapping[str, Any], file: str) -> Iterator[tuple[EnginePlan, Accuracy]]:
    """Yield the candidates whose accuracy was measured. Raises `CorruptModel` for invalid values."""
    candidates = document.get("candidates")
    if not isinstance(candidates, list) or not all(isinstance(entry, dict) for entry in candidates):
        raise CorruptModel(f"{file}: candidates must be a list of objects. Optimise the model again.")
    for index, entry in enumerate(candidates):
        name = f"{file}: candidates[{index}]"
        if entry.get("accuracy") is not None:
            plan = read_plan(read_mapping(entry, "plan", file=name), f"{name}.plan")
            yield plan, read_accuracy(read_mapping(entry, "accuracy", file=name), f"{name}.accuracy")


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a machine that speeds depend on. `processor` is vecmill's name for the type."""

    processor: str
    processor_model: str
    cores: int
    system: str

    @classmethod
    def current(cls) -> Self:
        """Return this machine, with the cores that this process may use."""
        return cls(processor_name(), processor_model(), available_cores(), platform.system())

    @property
    def fingerprint(self) -> str:
        """A hash of the properties: 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def runtime_versions(engines: Iterable[str]) -> dict[str, str]:
    """Return the versions of vecmill and of the installed packages that `engines` need, by name."""
    modules = {module for engine in engines if engine in ENGINES for module in ENGINES[engine].needs}
    found = {}
    for distribution in ("vecmill", *sorted(modules)):
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            continue  # a module whose distribution has another name
    return found
