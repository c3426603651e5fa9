"""The manifest and the block files: what a run goes on from, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from vecmill.bulk.input_scan import ColumnOptions, Columns, ColumnType
from vecmill.bulk.outputs import OutputSchema
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill_ray.bulk.blocks import BlockCounts, BulkBlock, RejectedRow, encode_block, read_counts
from vecmill_ray.bulk.bulk_manifest import (
    MANIFEST_FILE,
    BulkManifest,
    Identity,
    read_manifest,
    refuse_differences,
    refuse_foreign,
)
from vecmill_ray.bulk.inputs import InputAddress
from vecmill_ray.bulk.scan import BulkScan, join_scans, scan_span
from vecmill_ray.bulk.storage import SharedStorage

IDENTITY = Identity("some/model", "f" * 32, "onnx", "fp32", 4)
BLOCK = BulkBlock(0, 0, 0, 100, 1, 3)
SCHEMA = OutputSchema(4, np.dtype(np.float32), {"id": ColumnType.INTEGER}, {}, {"name": "some/model"})
COUNTS = BlockCounts(0, 2, 11, 1, [RejectedRow(0, 2, "has no text")])


def manifest(**settings: str) -> BulkManifest:
    scan = BulkScan([BLOCK], 2, 1, {"id": ColumnType.INTEGER})
    return BulkManifest({"text column": "text", **settings}, IDENTITY, Columns("text", ("id",)), scan)


def write_block(output: SharedStorage, digest: str = "12345678") -> None:
    content = encode_block(SCHEMA, COUNTS, np.eye(2, 4, dtype=np.float32), {"id": [7, 9]})
    output.write(BLOCK.file_name(digest), content)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    output = SharedStorage(str(tmp_path / "out"))
    assert read_manifest(output) is None
    output.write(MANIFEST_FILE, manifest().to_json())
    assert read_manifest(output) == manifest()


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    output = SharedStorage(str(tmp_path))
    output.write(MANIFEST_FILE, b'{"settings": {}}')
    with pytest.raises(InvalidConfig, match="is damaged"):
        read_manifest(output)


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="made with another dtype and another prompt"):
        refuse_differences(
            SharedStorage(str(tmp_path)), {"dtype": "int8", "prompt": None}, {"dtype": "float", "prompt": "q"}
        )


def test_other_settings_make_other_file_names() -> None:
    assert manifest().digest == manifest().digest != manifest(dtype="int8").digest


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    refuse_foreign(SharedStorage(str(tmp_path / "new")))
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(InvalidConfig, match=r"already has files, such as notes\.txt"):
        refuse_foreign(SharedStorage(str(tmp_path)))


def test_a_block_file_tells_its_counts(tmp_path: Path) -> None:
    output = SharedStorage(str(tmp_path))
    assert read_counts(output, BLOCK, "12345678") is None
    write_block(output)
    assert read_counts(output, BLOCK, "12345678") == BlockCounts(
        0, 2, 11, 1, (RejectedRow(0, 2, "has no text"),)
    )
    table = parquet.read_table(tmp_path / BLOCK.file_name("12345678"))
    assert table["id"].to_pylist() == [7, 9]
    assert table["embedding"].to_pylist() == np.eye(2, 4).tolist()


def test_a_block_written_twice_is_there_once(tmp_path: Path) -> None:
    output = SharedStorage(str(tmp_path))
    write_block(output)
    write_block(output)
    assert list(output.list_names()) == [BLOCK.file_name("12345678")]


def test_a_damaged_block_file_counts_as_missing(tmp_path: Path) -> None:
    output = SharedStorage(str(tmp_path))
    write_block(output)
    file = tmp_path / BLOCK.file_name("12345678")
    file.write_bytes(file.read_bytes()[:-100])
    assert read_counts(output, BLOCK, "12345678") is None


def test_differences_of_identities_are_named() -> None:
    other = Identity("some/model", "f" * 32, "onnx", "int8", 4)
    assert other.differences(IDENTITY) == ["precision int8 instead of fp32"]


def test_an_invalid_row_is_named_by_its_line_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecmill_ray.bulk.inputs.SPAN_BYTES", 20)
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "a"}\n' * 5 + '{"text": null}\n' + '{"text": "b"}\n' * 3, "utf-8")
    inputs = InputAddress(str(file)).open()
    spans = inputs[0].spans(0)
    columns = Columns("text", ())
    scans = [scan_span(inputs[0], span, columns, 2) for span in spans]
    with pytest.raises(InvalidCorpus, match="line 6 has no text"):
        join_scans(inputs, spans, scans, ColumnOptions(), columns)
    scan = join_scans(inputs, spans, scans, ColumnOptions(skips_invalid=True), columns)
    assert (scan.rows, scan.skipped, sum(block.records for block in scan.blocks)) == (8, 1, 9)
