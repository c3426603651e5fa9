"""What is written is what is read back, by the libraries that people read it with."""

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from support.corpora import read_column, read_rows
from vecmill.bulk import outputs
from vecmill.bulk.embedder import Vectors
from vecmill.bulk.input_scan import ColumnOptions, ColumnType
from vecmill.bulk.outputs import OutputSchema, check_output, open_output
from vecmill.errors import InvalidConfig
from vecmill.values.aliases import FloatArray

SUFFIXES = [".parquet", ".npy", ".jsonl"]
DIM = 6


def rows(count: int) -> FloatArray:
    return np.random.default_rng(1).standard_normal((count, DIM), np.float32)


def write(
    path: Path,
    values: Vectors,
    columns: Mapping[str, Sequence[Any]],
    column_types: Mapping[str, ColumnType],
    types: Mapping[str, Any] | None = None,
    step: int = 3,
) -> Path:
    shape = OutputSchema(DIM, values.dtype, column_types, types or {}, {"name": "m"})
    with open_output(path, shape) as output:
        for at in range(0, len(values), step):
            cut = {name: column[at : at + step] for name, column in columns.items()}
            output.write(values[at : at + step], cut)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_come_back_bit_for_bit(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", rows(10), {"id": list(range(10))}, {"id": ColumnType.INTEGER})
    assert np.array_equal(read_rows(path), rows(10))
    assert read_rows(path).dtype == np.float32


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
        ([1.5, math.nan], [1.5, None]),
        ({"a": [{"b": math.inf}], "c": "NaN"}, {"a": [{"b": None}], "c": "NaN"}),
    ],
)
def test_numbers_that_json_lacks_are_written_as_null(value: object, written: object, tmp_path: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    columns, types = {"x": [1.0, value, None]}, {"x": ColumnType.MIXED}
    lines = write(tmp_path / "a.jsonl", rows(3), columns, types).read_text().splitlines()
    found = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [row["x"] for row in found] == [1.0, written, None]
    # A column of values of several kinds is text in Parquet, which is JSON.
    path = write(tmp_path / "a.parquet", rows(3), columns, types)
    texts = parquet.read_table(path).column("x").to_pylist()
    assert json.loads(texts[1], parse_constant=refuse) == written


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_rows_of_8_bits_come_back_as_such(dtype: str, suffix: str, tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(-128, 128, (10, DIM), np.int8).view(dtype)
    found = read_rows(write(tmp_path / f"a{suffix}", values, {}, {}), dtype)
    assert (found.dtype, found.tolist()) == (values.dtype, values.tolist())


def test_8_bits_take_a_byte_in_parquet(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(-128, 128, (20_000, DIM), np.int8)
    path = write(tmp_path / "a.parquet", values, {}, {}, step=5_000)
    assert path.stat().st_size < 1.5 * values.nbytes


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ColumnType.INTEGER, [1, None, -(2**53)]),
        (ColumnType.LONG, [1, None, -(2**63)]),
        (ColumnType.FLOAT, [1, 2.5, None]),
        (ColumnType.TEXT, ["a", "漢🦊", None]),
        (ColumnType.BOOLEAN, [True, False, None]),
        (ColumnType.NOTHING, [None, None, None]),
    ],
    ids=str,
)
def test_columns_come_back_as_they_were(
    kind: ColumnType, values: list[Any], suffix: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"a{suffix}", rows(3), {"id": values}, {"id": kind}, step=2)
    assert read_column(path, "id") == values


def test_mixed_values_are_written_as_text(tmp_path: Path) -> None:
    values = [1, "b", None, {"c": [1]}, True]
    path = write(tmp_path / "a.parquet", rows(5), {"id": values}, {"id": ColumnType.MIXED})
    assert read_column(path, "id") == ["1", "b", None, '{"c": [1]}', "true"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us", tz="UTC"), [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), None]),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": 1, "b": "x"}, None]),
        (pa.list_(pa.float64()), [[1.0], []]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", "a"]),
        (pa.large_string(), ["a", None]),
        (pa.decimal128(10, 2), [None, None]),
        (pa.binary(), [b"a", None]),
    ],
    ids=str,
)
def test_columns_of_parquet_keep_their_types(kind: Any, values: list[Any], tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.parquet",
        rows(2),
        {"extra": values},
        {"extra": ColumnType.MIXED},
        {"extra": kind},
        step=1,
    )
    assert parquet.read_schema(path).field("extra").type == kind
    assert read_column(path, "extra") == values


def test_the_embedding_is_a_list_of_fixed_length_and_the_model_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", rows(3), {}, {})
    schema = parquet.read_schema(path)
    assert schema.field("embedding").type == pa.list_(pa.float32(), DIM)
    assert json.loads(schema.metadata[b"vecmill"]) == {"name": "m"}


def test_groups_are_filled_and_not_one_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_GROUP_BYTES", 10 * DIM * 4)
    path = write(tmp_path / "a.parquet", rows(25), {}, {}, step=5)
    with parquet.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert groups == [10, 10, 5]


def test_long_values_fill_a_group_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_GROUP_BYTES", 100_000)
    long = ["x" * 10_000] * 30
    path = write(tmp_path / "a.parquet", rows(30), {"body": long}, {"body": ColumnType.TEXT}, step=5)
    with parquet.ParquetFile(path) as file:
        assert file.num_row_groups == 3


def test_an_array_can_be_mapped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npy", rows(3), {}, {})
    assert np.array_equal(np.load(path, mmap_mode="r"), rows(3))


def test_what_cannot_be_written_is_refused_beforehand() -> None:
    with pytest.raises(InvalidConfig, match=r"\.parquet, \.npy, \.jsonl"):
        check_output(Path("a.csv"), ColumnOptions())
    with pytest.raises(InvalidConfig, match="cannot hold columns"):
        check_output(Path("a.npy"), ColumnOptions(copied_columns=("title",)))
    with pytest.raises(InvalidConfig, match="cannot hold columns"):
        check_output(Path("a.npy"), ColumnOptions(id_column="key"))
    with pytest.raises(InvalidConfig, match="'embedding'"):
        check_output(Path("a.jsonl"), ColumnOptions(copied_columns=("embedding",)))
    with pytest.raises(InvalidConfig, match="'embedding'"):
        check_output(Path("a.parquet"), ColumnOptions(id_column="embedding"))
