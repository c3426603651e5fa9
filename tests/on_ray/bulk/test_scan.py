"""The scan: columns of the first file that has any, few tasks, and inputs that have not changed."""

import os
from pathlib import Path

import pytest

from vecmill.bulk.input_scan import ColumnOptions, Columns
from vecmill.errors import InvalidCorpus
from vecmill_ray.bulk.blocks import InputSpan
from vecmill_ray.bulk.inputs import InputAddress, _report_read_errors
from vecmill_ray.bulk.scan import choose_input_columns, group_spans, scan_spans
from vecmill_ray.bulk.storage import SharedStorage

SPANS = [InputSpan(number, 0, None) for number in range(10_000)]


def write(folder: Path, *files: str) -> InputAddress:
    for name, content in zip("bcd", files, strict=False):
        (folder / f"{name}.jsonl").write_text(content, "utf-8")
    return InputAddress(str(folder))


def test_a_first_file_without_rows_does_not_choose_the_columns(tmp_path: Path) -> None:
    inputs = write(tmp_path, "", '{"id": 1, "text": "a"}\n').open()
    assert choose_input_columns(inputs, ColumnOptions()) == Columns("text", ("id",))
    assert choose_input_columns(inputs[:1], ColumnOptions()) == Columns("text", ())


def test_an_empty_csv_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    inputs = write(tmp_path, '{"id": 1, "text": "a"}\n').open()
    with pytest.raises(InvalidCorpus, match=r"a\.csv is empty"):
        choose_input_columns(inputs, ColumnOptions())


@pytest.mark.parametrize(("cores", "tasks"), [(1, 40), (16, 129), (2_000, 10_000), (0, 40)])
def test_few_tasks_scan_many_files(cores: int, tasks: int) -> None:
    groups = group_spans(SPANS, cores)
    assert len(groups) == tasks
    assert [span for group in groups for span in group] == SPANS


def test_a_scan_of_spans_is_that_of_the_listed_files(tmp_path: Path) -> None:
    address = write(tmp_path, '{"text": "a"}\n', '{"text": "b"}\n{"text": "c"}\n')
    identities = [found.identity for found in address.open()]
    columns = Columns("text", ())
    scans = scan_spans(address, identities, columns, 10, SPANS[:2])
    assert [scan.rows for scan in scans] == [1, 2]
    os.utime(tmp_path / "c.jsonl", ns=(0, 0))
    with pytest.raises(InvalidCorpus, match=r"c\.jsonl has changed since the start of the run"):
        scan_spans(address, identities, columns, 10, SPANS[:2])


def test_a_column_that_arrow_cannot_read_is_an_error_of_the_input(tmp_path: Path) -> None:
    [file] = SharedStorage(write(tmp_path, "{}").address).files()
    with (
        pytest.raises(InvalidCorpus, match=r"b\.jsonl cannot be read: no such type"),
        _report_read_errors(file),
    ):
        raise NotImplementedError("no such type.")
