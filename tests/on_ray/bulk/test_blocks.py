"""Blocks: the same input always makes the same blocks, and each row is in one of them."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from vecmill.bulk.input_scan import Columns
from vecmill.bulk.records import Record
from vecmill_ray.bulk import inputs as bulk_inputs
from vecmill_ray.bulk.blocks import BulkBlock, Row, cut_rows, number_blocks, order_by_length
from vecmill_ray.bulk.inputs import BulkInput, InputAddress
from vecmill_ray.bulk.scan import scan_span

COLUMNS = Columns("text", ("id",))


def rows_of(positions: list[int], length: int = 1) -> list[Row]:
    return [Row(at, place, Record(place, ("x" * length,))) for place, at in enumerate(positions, 1)]


def blocks_of(found: BulkInput, block_rows: int) -> list[BulkBlock]:
    spans = found.spans(0)
    scans = [scan_span(found, span, COLUMNS, block_rows) for span in spans]
    return number_blocks(spans, [scan.cuts for scan in scans], [scan.places for scan in scans])


def read_all(found: BulkInput, blocks: list[BulkBlock]) -> list[tuple[int, str, int]]:
    return [
        (row.record.place, *row.record.values)
        for block in blocks
        for row in found.read(COLUMNS.names, block.start, block.stop, block.first_place)
        if row.record is not None
    ]


def test_a_block_has_at_most_so_many_rows() -> None:
    cuts = list(cut_rows(rows_of(list(range(10))), 4))
    assert [(cut.start, cut.place, cut.records) for cut in cuts] == [(0, 1, 4), (4, 5, 4), (8, 9, 2)]


def test_long_texts_make_smaller_blocks() -> None:
    cuts = list(cut_rows(rows_of(list(range(4)), length=9_000_000), 100))
    assert [cut.records for cut in cuts] == [2, 2]


def test_rows_with_one_key_stay_in_one_block() -> None:
    cuts = list(cut_rows(rows_of([1, 1, 1, 2, 2, 3]), 2))
    assert [(cut.start, cut.records) for cut in cuts] == [(1, 3), (2, 2), (3, 1)]


def test_an_empty_line_is_a_place_but_no_row() -> None:
    rows = [Row(0, 1, None), *(Row(5 * place, place, Record(place, ("x",))) for place in (2, 3))]
    assert [(cut.start, cut.place, cut.records) for cut in cut_rows(rows, 10)] == [(10, 2, 2)]


def test_a_block_survives_json() -> None:
    block = BulkBlock(3, 0, "a", None, 17, 5)
    assert BulkBlock.from_json(block.to_json()) == block
    assert block.file_name("0a1b2c3d") == "part-0000003-0a1b2c3d.parquet"


def test_the_longest_text_is_first() -> None:
    assert order_by_length(["b", "ccc", "", "aa", "ddd"]) == [1, 4, 3, 0, 2]


@pytest.mark.parametrize("span_bytes", [1, 7, 64, 10_000])
@pytest.mark.parametrize("block_rows", [1, 3, 100])
def test_byte_ranges_hold_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span_bytes: int, block_rows: int
) -> None:
    monkeypatch.setattr(bulk_inputs, "SPAN_BYTES", span_bytes)
    lines = [json.dumps({"id": number, "text": "é" * (number * 7 % 11)}) for number in range(40)]
    lines[5] = lines[20] = ""
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(lines), "utf-8")
    [found] = InputAddress(str(file)).open()
    blocks = blocks_of(found, block_rows)
    assert [block.number for block in blocks] == list(range(len(blocks)))
    expected = [
        (place, json.loads(line)["text"], json.loads(line)["id"])
        for place, line in enumerate(lines, 1)
        if line
    ]
    assert read_all(found, blocks) == expected


@pytest.mark.parametrize("block_rows", [1, 7, 100])
def test_row_groups_hold_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_rows: int
) -> None:
    monkeypatch.setattr(bulk_inputs, "SPAN_GROUPS", 2)
    rows = [{"id": number, "text": f"text {number}"} for number in range(53)]
    file = tmp_path / "texts.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=10)
    [found] = InputAddress(str(file)).open()
    assert len(found.spans(0)) == 3
    expected = [(number + 1, f"text {number}", number) for number in range(53)]
    assert read_all(found, blocks_of(found, block_rows)) == expected


def test_compressed_and_csv_files_are_read_in_row_ranges(tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text("id,text\n" + "".join(f'{number},"a,\nb{number}"\n' for number in range(9)), "utf-8")
    [found] = InputAddress(str(file)).open()
    blocks = blocks_of(found, 4)
    assert [block.records for block in blocks] == [4, 4, 1]
    assert [text for _, text, _ in read_all(found, blocks)] == [f"a,\nb{number}" for number in range(9)]


def test_the_files_of_a_folder_are_inputs_in_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "_hidden.jsonl", ".hidden.jsonl", "inner/c.jsonl"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text('{"text": "x"}\n', "utf-8")
    names = [str(found.source.path) for found in InputAddress(str(tmp_path)).open()]
    assert names == [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl", "inner/c.jsonl")]
