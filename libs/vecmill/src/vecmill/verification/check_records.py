"""Records of what `vecmill check` found, for the servers that serve the same model in the same way.

A record is a file in the cache directory:

    cache_dir/checks/<key>.json

The key is a digest of what the outputs depend on: the fingerprint of the model (and of its queries, if they
have a model of their own), the engine, its precision and device, the type of processor, and the versions of
vecmill and of the engine's packages. So the findings about other weights or another engine have another name,
and are never shown. A later check of the same replaces the record. No text is stored.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vecmill.errors import VecmillError
from vecmill.hardware.processor import processor_name
from vecmill.models import ModelDescription, fingerprint_model
from vecmill.models.digests import keep_document
from vecmill.serving_plan.manifest import runtime_versions
from vecmill.serving_plan.plans import Accuracy, read_accuracy, write_accuracy
from vecmill.values.engine_plan import EngineInfo
from vecmill.values.json_text import decode_json

logger = logging.getLogger(__name__)

FOLDER = "checks"
# A larger file was not written by `write_record`.
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """The accuracy of the texts on one side of a model, and whether it was within the check's bound.

    `side` is `documents` or `queries` of an asymmetric model, `None` of other models.
    """

    side: str | None
    accuracy: Accuracy
    is_within: bool


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """What one run of `vecmill check` found.

    `checked_at` is in UTC. With `has_own_texts`, the user named a file of texts; else they were vecmill's
    sample texts.
    """

    checked_at: datetime
    has_own_texts: bool
    findings: tuple[Finding, ...]

    @property
    def checked_on(self) -> str:
        """The time of the check, as in RFC 3339, in whole seconds."""
        return self.checked_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def write_record(
    record: CheckRecord, description: ModelDescription, engine: EngineInfo, cache_dir: Path
) -> Path:
    """Store a record for servers, and return its file. Raises `OSError`."""
    path = _record_file(description, engine, cache_dir)
    document = {
        "checked_at": record.checked_on,
        "has_own_texts": record.has_own_texts,
        "findings": [
            {
                "side": finding.side,
                "is_within": finding.is_within,
                "accuracy": write_accuracy(finding.accuracy),
            }
            for finding in record.findings
        ],
    }
    keep_document(path, document)
    return path


def find_record(description: ModelDescription, engine: EngineInfo, cache_dir: Path) -> CheckRecord | None:
    """Return the record of a model that `engine` computes; `None` if there is none that can be read.

    Reads the weights if their digest is not known yet (`fingerprint_model`). Raises `CorruptModel` if they
    cannot be read.
    """
    path = _record_file(description, engine, cache_dir)
    try:
        with path.open("rb") as file:
            return _read(decode_json(file.read(_MOST_BYTES)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, VecmillError) as error:
        logger.warning("%s cannot be read, and is not shown: %s", path, error)
        return None


def _read(document: dict[str, Any]) -> CheckRecord:
    checked_at = datetime.fromisoformat(document["checked_at"])
    if checked_at.tzinfo is None:
        raise ValueError("the time of the check has no time zone")
    return CheckRecord(
        checked_at,
        document["has_own_texts"] is True,
        tuple(
            Finding(
                finding["side"] if finding["side"] in ("documents", "queries") else None,
                read_accuracy(finding["accuracy"], "accuracy"),
                finding["is_within"] is True,
            )
            for finding in document["findings"]
        ),
    )


def _record_file(description: ModelDescription, engine: EngineInfo, cache_dir: Path) -> Path:
    parts: Sequence[object] = (
        *(fingerprint_model(each, cache_dir) for each in description.text_sides),
        engine.name,
        engine.precision,
        engine.device,
        processor_name(),
        sorted(runtime_versions([engine.name]).items()),
    )
    return cache_dir / FOLDER / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.json"
