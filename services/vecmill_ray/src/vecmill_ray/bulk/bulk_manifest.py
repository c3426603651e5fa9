"""The manifest of an output: the settings, the input and the blocks of a run, so that a run can go on.

The manifest is written once, before the first block. A later run with other settings is refused, because the
output would mix embeddings of different models, options or inputs.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vecmill.bulk.input_scan import Columns, ColumnType
from vecmill.errors import InvalidConfig
from vecmill.values.aliases import JsonValue
from vecmill.values.json_text import decode_json
from vecmill_ray.bulk.blocks import BulkBlock
from vecmill_ray.bulk.scan import BulkScan
from vecmill_ray.bulk.storage import SharedStorage

MANIFEST_FILE = "_vecmill.json"
REJECTED_FILE = "_rejected.jsonl"
# The name by which other tools for large data sets recognise a complete output.
SUCCESS_FILE = "_SUCCESS"

_DIGEST_DIGITS = 8

Settings = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Identity:
    """What the vectors depend on: the model, its content, the engine, the precision and the dimensions."""

    model: str
    fingerprint: str
    engine: str
    precision: str
    dim: int

    def differences(self, other: "Identity") -> list[str]:
        """Return a phrase for each value that differs from `other`."""
        words = {"fingerprint": "content of the model", "dim": "number of dimensions"}
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{words.get(name, name)} {mine[name]} instead of {theirs[name]}"
            for name in mine
            if mine[name] != theirs[name]
        ]


@dataclass(frozen=True, slots=True)
class BulkManifest:
    """A run: its `settings` by their names for error messages, the identity of its model, and its scan."""

    settings: Settings
    identity: Identity
    columns: Columns
    scan: BulkScan

    @property
    def digest(self) -> str:
        """Hexadecimal digits that differ for other settings, inputs or models; part of all file names."""
        values = json.dumps([self.settings, asdict(self.identity)], sort_keys=True)
        return hashlib.sha256(values.encode()).hexdigest()[:_DIGEST_DIGITS]

    def file_names(self) -> set[str]:
        """Return the names of all block files."""
        return {block.file_name(self.digest) for block in self.scan.blocks}

    def to_json(self) -> bytes:
        """Return the content of the manifest's file."""
        scan = self.scan
        values = {
            "settings": self.settings,
            "identity": asdict(self.identity),
            "columns": [self.columns.text, *self.columns.copies],
            "has_pictures": self.columns.has_pictures,
            "rows": scan.rows,
            "skipped": scan.skipped,
            "column_types": dict(scan.column_types),
            "blocks": [block.to_json() for block in scan.blocks],
        }
        return json.dumps(values, indent=1).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "BulkManifest":
        """Return the manifest of a file. Raises `KeyError`, `TypeError` or `ValueError` for another file."""
        found: dict[str, Any] = decode_json(content)
        text, *copies = found["columns"]
        scan = BulkScan(
            [BulkBlock.from_json(line) for line in found["blocks"]],
            found["rows"],
            found["skipped"],
            {name: ColumnType(kind) for name, kind in found["column_types"].items()},
        )
        columns = Columns(text, tuple(copies), found.get("has_pictures", False))
        return cls(found["settings"], Identity(**found["identity"]), columns, scan)


def read_manifest(output: SharedStorage) -> BulkManifest | None:
    """Return the manifest of an output, `None` if there is none. Raises `InvalidConfig` if it is damaged."""
    content = output.read(MANIFEST_FILE)
    if content is None:
        return None
    try:
        return BulkManifest.from_json(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidConfig(
            f"{MANIFEST_FILE} in {output.name} is damaged. Remove this folder to start again."
        ) from error


def refuse_foreign(output: SharedStorage) -> None:
    """Raise `InvalidConfig` if a folder without a manifest has files."""
    names = sorted(output.list_names())
    if names:
        raise InvalidConfig(
            f"{output.name} already has files, such as {names[0]}. Choose another folder, or remove them."
        )


def refuse_differences(output: SharedStorage, known: Settings, settings: Settings) -> None:
    """Raise `InvalidConfig` if a run has other settings than the output."""
    others = [name for name in {**settings, **known} if known.get(name) != settings.get(name)]
    if others:
        raise InvalidConfig(
            f"{output.name} has blocks that were made with another {' and another '.join(others)}. To "
            f"continue, use the settings in {MANIFEST_FILE} of this folder. To start again, remove "
            "the folder."
        )
