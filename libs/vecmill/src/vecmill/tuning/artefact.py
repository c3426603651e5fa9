"""A directory to serve from: the model's own files, what was found, and what the engine prepares.

    config.json, tokenizer.json, ...    the model, as it was; weights are linked where they can be
    vecmill.json                        `manifest`: the plan, and every figure
    prepared/                           what the engine makes of the model before it can run it
    report.md, *.png                    for people
    measurements.jsonl                  `journal`: every measurement, as it was made

The manifest comes last: a directory without one is the model as it was, served as any other.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from vecmill.errors import InvalidConfig
from vecmill.models import ModelDescription
from vecmill.models.fingerprint import stage_files
from vecmill.models.hub import ALLOWED_FILES
from vecmill.tuning.choice import Choice, Demand
from vecmill.tuning.documents import Document, write_accuracy, write_plan
from vecmill.tuning.figures import Ledger
from vecmill.tuning.machine import Machine
from vecmill.tuning.manifest import MANIFEST_FILE, PREPARED_FOLDER, SCHEMA

JOURNAL_FILE = "measurements.jsonl"
REPORT_FILE = "report.md"
OURS = (MANIFEST_FILE, JOURNAL_FILE, REPORT_FILE)


@dataclass(frozen=True, slots=True)
class Findings:
    """All that there is to write down of one run."""

    model: str
    model_fingerprint: str
    machine: Machine
    versions: Mapping[str, str]
    demand: Demand
    ledger: Ledger
    choice: Choice
    left_out: Mapping[str, str]
    texts: int


def open_directory(directory: Path) -> None:
    """Make the directory, or take one that an earlier run has made.

    Raises `InvalidConfig` for one with anything else in it, and where it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = [path.name for path in directory.iterdir()]
    except OSError as error:
        raise InvalidConfig(
            f"{directory} cannot be written: {error.strerror}. Name another with -o."
        ) from error
    if found and not any(name in found for name in OURS):
        raise InvalidConfig(f"{directory} has other files in it. Name an empty or a new directory with -o.")


def copy_model(description: ModelDescription, directory: Path) -> None:
    """Put the model's own files into `directory`, except where it is the model's own."""
    source = description.directory
    (directory / MANIFEST_FILE).unlink(missing_ok=True)
    if source.resolve() == directory.resolve():
        return
    for file in sorted(_model_files(description)):
        target = directory / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        # Settings are copied, for people edit them; weights are large, and nobody does.
        if file.suffix == ".json" or not _link(file, target):
            shutil.copyfile(file, target)


def write_manifest(findings: Findings, directory: Path) -> None:
    """Write `vecmill.json`, whole or not at all."""
    unfinished = directory / f"{MANIFEST_FILE}.unfinished"
    unfinished.write_text(json.dumps(describe_findings(findings), indent=2) + "\n", encoding="utf-8")
    unfinished.replace(directory / MANIFEST_FILE)


def describe_findings(findings: Findings) -> Document:
    """The manifest's document."""
    machine = findings.machine
    return {
        "schema": SCHEMA,
        "model": findings.model,
        "model_fingerprint": findings.model_fingerprint,
        "machine": {**asdict(machine), "fingerprint": machine.fingerprint},
        "versions": dict(findings.versions),
        "plan": write_plan(findings.choice.plan),
        "reason": findings.choice.reason,
        "is_too_noisy": findings.choice.is_too_noisy,
        "noise": findings.choice.noise,
        "demand": asdict(findings.demand),
        "texts": findings.texts,
        "candidates": list(_candidates(findings.ledger)),
        "left_out": dict(findings.left_out),
    }


def clear_prepared(directory: Path) -> Path:
    """The folder for what the engine prepares, empty."""
    folder = directory / PREPARED_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _candidates(ledger: Ledger) -> Iterator[dict[str, Any]]:
    for plan in ledger.plans:
        own, alike = ledger.admissions.get(plan), ledger.admission_of(plan)
        speed, ratio = ledger.speed_of(plan), ledger.median_ratio(plan)
        yield {
            "plan": write_plan(plan),
            "is_safe": plan == ledger.safe,
            "load_s": None if own is None else own.load_s,
            "memory_mb": None if own is None else own.memory_mb,
            "accuracy": None if alike is None else write_accuracy(alike.accuracy),
            "accuracy_is_own": own is not None,
            "speed": None if speed is None else asdict(speed),
            "ratio": None if ratio is None else asdict(ratio),
            "ratios": [asdict(found) for found in ledger.ratios(plan)],
            "failure": ledger.failures.get(plan),
        }


def _model_files(description: ModelDescription) -> set[Path]:
    """The files of a model that are read, or may be by a later release; of weights only those."""
    source = description.directory
    files = {description.tokenizer_file, *description.weights_files, *stage_files(description)}
    for folder, folders, names in os.walk(source):
        folders[:] = [name for name in folders if name != PREPARED_FOLDER and not name.startswith(".")]
        files |= {Path(folder) / name for name in names if _is_setting(name)}
    return files


def _is_setting(name: str) -> bool:
    if name in OURS or name.endswith(".safetensors"):
        return False
    return any(fnmatch(name, pattern) for pattern in ALLOWED_FILES)


def _link(file: Path, target: Path) -> bool:
    """Whether `target` is now another name of `file`."""
    with contextlib.suppress(OSError):  # another disk, or one that has no links
        os.link(file.resolve(), target)
        return True
    return False
