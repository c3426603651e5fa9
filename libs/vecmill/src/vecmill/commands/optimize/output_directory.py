"""The output directory: the model's own files, the manifest, the report and the prepared files.

    config.json, tokenizer.json, ...    the unchanged model; weights are hard links if possible
    vecmill.json                        manifest: the plan, and all figures
    prepared/                           files that the engine prepares at its first load
    report.md, *.png                    report for people
    measurements.jsonl                  journal: all measurements, in order

The manifest is written last: a directory without a manifest is served like any other model.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from vecmill.commands.optimize.choice import Choice, Goal
from vecmill.commands.optimize.measurements import Measurements
from vecmill.commands.optimize.plan_quality import PlanKind, PlanQuality
from vecmill.errors import InvalidConfig
from vecmill.models import ModelDescription
from vecmill.models.hub import ALLOWED_FILES
from vecmill.models.location import MANIFEST_FILE
from vecmill.serving_plan.manifest import PREPARED_FOLDER, SCHEMA, Machine
from vecmill.serving_plan.outcome import list_weights
from vecmill.serving_plan.plans import JsonObject, write_accuracy, write_plan

JOURNAL_FILE = "measurements.jsonl"
REPORT_FILE = "report.md"
GENERATED_FILES = (MANIFEST_FILE, JOURNAL_FILE, REPORT_FILE)


@dataclass(frozen=True, slots=True)
class OptimizationResult:
    """The result of a run: the inputs, all measurements and the chosen plan.

    `qualities` are those of the plans that were evaluated on labelled texts, by kind.
    """

    model: str
    model_fingerprint: str
    machine: Machine
    versions: Mapping[str, str]
    goal: Goal
    measured: Measurements
    choice: Choice
    left_out: Mapping[str, str]
    texts: int
    qualities: Mapping[PlanKind, PlanQuality] = field(default_factory=dict)


def open_directory(directory: Path) -> None:
    """Make the directory, or accept the directory of an earlier run.

    Raises `InvalidConfig` for a directory with other files, or if it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = [path.name for path in directory.iterdir()]
        if not os.access(directory, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InvalidConfig(
            f"{directory} cannot be written: {error.strerror}. Choose another directory with -o."
        ) from error
    if found and not any(name in found for name in GENERATED_FILES):
        raise InvalidConfig(f"{directory} has other files in it. Choose an empty or new directory with -o.")


def copy_model(description: ModelDescription, directory: Path) -> None:
    """Copy the model's own files to `directory`, unless this is the model's directory."""
    source = description.directory
    (directory / MANIFEST_FILE).unlink(missing_ok=True)
    if source.resolve() == directory.resolve():
        return
    for file in sorted(_model_files(description)):
        target = directory / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        # Settings are copied, since people edit them; large weights are linked.
        if file.suffix == ".json" or not _link(file, target):
            shutil.copyfile(file, target)


def write_manifest(result: OptimizationResult, directory: Path) -> None:
    """Write `vecmill.json` under a temporary name, and rename it."""
    unfinished = directory / f"{MANIFEST_FILE}.unfinished"
    unfinished.write_text(json.dumps(describe_result(result), indent=2) + "\n", encoding="utf-8")
    unfinished.replace(directory / MANIFEST_FILE)


def describe_result(result: OptimizationResult) -> JsonObject:
    """Return the manifest as a JSON object."""
    machine = result.machine
    return {
        "schema": SCHEMA,
        "model": result.model,
        "model_fingerprint": result.model_fingerprint,
        "machine": {**asdict(machine), "fingerprint": machine.fingerprint},
        "versions": dict(result.versions),
        "plan": write_plan(result.choice.plan),
        "reason": result.choice.reason,
        "is_too_noisy": result.choice.is_too_noisy,
        "noise": result.choice.noise,
        "demand": asdict(result.goal),
        "texts": result.texts,
        "candidates": list(_candidates(result.measured)),
        "left_out": dict(result.left_out),
    }


def clear_prepared(directory: Path) -> Path:
    """Remove the prepared files, and return the path of their folder."""
    folder = directory / PREPARED_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _candidates(measured: Measurements) -> Iterator[dict[str, Any]]:
    for plan in measured.plans:
        own, alike = measured.screenings.get(plan), measured.screening_of(plan)
        speed, ratio = measured.speed_of(plan), measured.median_ratio(plan)
        yield {
            "plan": write_plan(plan),
            "is_safe": plan == measured.safe,
            "load_s": None if own is None else own.load_s,
            "memory_mb": None if own is None else own.memory_mb,
            "accuracy": None if alike is None else write_accuracy(alike.accuracy),
            "accuracy_is_own": own is not None,
            "speed": None if speed is None else asdict(speed),
            "ratio": None if ratio is None else asdict(ratio),
            "ratios": [asdict(found) for found in measured.ratios(plan)],
            "failure": measured.failures.get(plan),
        }


def _model_files(description: ModelDescription) -> set[Path]:
    """Return the files that this or a later release may read.

    Weight files that are not in use are left out.
    """
    source = description.directory
    files = {*list_weights(description), *(side.tokenizer_file for side in description.text_sides)}
    for folder, folders, names in os.walk(source):
        folders[:] = [name for name in folders if name != PREPARED_FOLDER and not name.startswith(".")]
        files |= {Path(folder) / name for name in names if _is_setting(name)}
    return files


def _is_setting(name: str) -> bool:
    if name in GENERATED_FILES or name.endswith(".safetensors"):
        return False
    return any(fnmatch(name, pattern) for pattern in ALLOWED_FILES)


def _link(file: Path, target: Path) -> bool:
    """Make `target` a hard link to `file`, and return whether this succeeded."""
    with contextlib.suppress(OSError):  # another disk, or a file system without hard links
        os.link(file.resolve(), target)
        return True
    return False
