"""Which columns are read, and what is said of an input before anything is embedded."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from support.corpora import write_corpus
from vecmill.bulk.input_scan import (
    ColumnOptions,
    Columns,
    ColumnType,
    InputScan,
    scan_source,
    valid_records,
)
from vecmill.bulk.sources import open_source
from vecmill.errors import InvalidConfig, InvalidCorpus

SUFFIXES = [".jsonl", ".csv", ".parquet"]


def scan(path: Path, **options: Any) -> InputScan:
    return scan_source(open_source(path), ColumnOptions(**options), tell=print)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_text_and_id_are_found_by_their_names(suffix: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / f"a{suffix}", [{"title": "t", "id": "1", "text": "a"}] * 3)
    found = scan(path)
    assert (found.columns, found.rows) == (Columns("text", ("id",)), 3)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_only_column_of_texts_is_taken(suffix: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / f"a{suffix}", [{"id": "1", "body": "a"}])
    assert scan(path).columns == Columns("body", ("id",))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_where_it_is_not_clear_the_columns_are_listed(suffix: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / f"a{suffix}", [{"title": "t", "body": "a"}])
    with pytest.raises(InvalidConfig, match=r"'title', 'body'.*--text-column"):
        scan(path)
    assert scan(path, text_column="body", id_column="title").columns == Columns("body", ("title",))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("wanted", [{"id_column": "nose"}, {"copied_columns": ("nose",)}], ids=str)
def test_a_column_that_is_not_there_is_named(wanted: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / f"a{suffix}", [{"id": "1", "text": "a"}])
    with pytest.raises(InvalidConfig, match="'nose'"):
        scan(path, **wanted)


def test_for_a_misspelt_column_the_nearest_is_named(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.csv", [{"id": "1", "text": "a"}])
    with pytest.raises(InvalidConfig, match="Did you mean 'text'"):
        scan(path, text_column="txet")


def test_rows_that_are_left_out_are_named_up_to_five(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_corpus(tmp_path / "a.jsonl", [{"text": "a"}, *({"text": None} for _ in range(7))])
    assert scan(path, skips_invalid=True).skipped == 7
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Left out: ")]
    assert told == [*(f"Left out: line {line} has no text." for line in range(2, 7)), "Left out: 2 more."]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_text_column_that_is_not_there_is_named(suffix: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / f"a{suffix}", [{"id": "1", "text": "a"}])
    with pytest.raises((InvalidConfig, InvalidCorpus)):
        scan(path, text_column="nose")


def test_a_column_of_numbers_holds_no_texts(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.parquet", [{"text": 1}])
    with pytest.raises(InvalidConfig, match="holds no strings"):
        scan(path)


@pytest.mark.parametrize(("suffix", "place"), [(".jsonl", "line 2"), (".parquet", "row 2")])
def test_a_row_without_a_text_is_named_or_left_out(suffix: str, place: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / f"a{suffix}", [{"text": "a"}, {"text": None}, {"text": "c"}])
    with pytest.raises(InvalidCorpus, match=rf"{place} has no text\. .*--skip-invalid"):
        scan(path)
    found = scan(path, skips_invalid=True)
    assert (found.rows, found.skipped) == (2, 1)
    records = valid_records(open_source(path), found.columns)
    assert [record.values[0] for record in records] == ["a", "c"]


@pytest.mark.parametrize("value", ["a \ud800", ["\ud800"], {"key": {"b": "\udfff"}}], ids=ascii)
def test_a_copied_value_that_cannot_be_written_is_named_before_anything_is_computed(
    value: Any, tmp_path: Path
) -> None:
    path = write_corpus(tmp_path / "a.jsonl", [{"id": "漢🦊", "text": "a"}, {"id": value, "text": "b"}])
    with pytest.raises(InvalidCorpus, match=r"line 2 has half of a surrogate pair .*in the column 'id'"):
        scan(path)
    assert scan(path, skips_invalid=True).rows == 1


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_that_is_there_twice_is_refused_where_it_is_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        path.write_text("x,text,text\n1,a,b\n", "utf-8")
    else:
        parquet.write_table(pa.Table.from_arrays([["1"], ["a"], ["b"]], ["x", "text", "text"]), path)
    with pytest.raises(InvalidCorpus, match="2 columns named 'text'"):
        scan(path)
    assert scan(path, text_column="x").rows == 1


@pytest.mark.parametrize("content", ["", "\n\n", '{"text": null}\n'])
def test_an_input_without_texts_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(content, "utf-8")
    with pytest.raises((InvalidConfig, InvalidCorpus)):
        scan(tmp_path / "a.jsonl", skips_invalid=True)


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("", "utf-8")
    with pytest.raises(InvalidCorpus, match="is empty"):
        scan(tmp_path / "a.csv")


@pytest.mark.parametrize("content", ['[\n{"text": "a"}\n]\n', '{\n"text": "a"\n}\n', '\ufeff{"text"'])
def test_a_file_of_other_json_is_called_so(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(content, "utf-8")
    with pytest.raises(InvalidCorpus, match="line 1 is not"):
        scan(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None], ColumnType.INTEGER),
        ([1, 2.5], ColumnType.FLOAT),
        (["a", "b"], ColumnType.TEXT),
        ([1, "b"], ColumnType.MIXED),
        ([True, False], ColumnType.BOOLEAN),
        ([True, 1], ColumnType.MIXED),
        ([2**63], ColumnType.MIXED),
        ([-(2**63)], ColumnType.LONG),
        ([1, 2**53 + 1, None, 2], ColumnType.LONG),
        ([2**53, 0.5], ColumnType.FLOAT),
        ([2**53 + 1, 0.5], ColumnType.MIXED),
        ([0.5, 1, -(2**53) - 1], ColumnType.MIXED),
        ([{"a": 1}], ColumnType.MIXED),
        ([1, {"a": 1}, 2.5], ColumnType.MIXED),
    ],
    ids=str,
)
def test_the_kind_of_a_column_is_that_of_all_its_values(
    values: list[Any], kind: ColumnType, tmp_path: Path
) -> None:
    path = write_corpus(tmp_path / "a.jsonl", [{"id": value, "text": "a"} for value in values])
    assert scan(path).column_types == {"id": kind}
