"""Every format gives the same records; what cannot be read is named with its place."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from support.corpora import write_corpus
from vecmill.bulk.input_files import import_arrow
from vecmill.bulk.input_scan import ColumnOptions, scan_source
from vecmill.bulk.records import PART_CHARACTERS, PART_TEXTS, Record, cut_parts, find_problem
from vecmill.bulk.sources import open_source
from vecmill.errors import InvalidCorpus, MissingExtra

ROWS = [
    {"id": "a", "text": "Cats sleep anywhere."},
    {"id": "b", "text": 'Two lines,\nand "quotes"; naïve 漢🦊'},
    {"id": "c", "text": ""},
]


def read(path: Path, *names: str) -> list[Record]:
    return list(open_source(path).records(names))


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".csv", ".parquet", ".PARQUET"])
def test_every_format_gives_the_same_values(suffix: str, tmp_path: Path) -> None:
    path = write_corpus(tmp_path / f"corpus{suffix.lower()}", ROWS).rename(tmp_path / f"renamed{suffix}")
    found = read(path, "text", "id")
    assert [record.values for record in found] == [(row["text"], row["id"]) for row in ROWS]
    assert open_source(path).columns() == {"id": True, "text": True}


def test_places_are_lines_where_there_are_lines(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"text": "a"}\r\n\n{"text": "b"}\n{"text": "c"}', "utf-8")
    assert [record.place for record in read(lines, "text")] == [1, 3, 4]
    table = write_corpus(tmp_path / "a.csv", [*ROWS, {"id": "d", "text": "after two lines"}])
    assert [record.place for record in read(table, "text")] == [2, 3, 5, 6]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufefftext\nhello\n", "utf-8")
    (tmp_path / "a.jsonl").write_text('\ufeff{"text": "hello"}\n', "utf-8")
    assert read(tmp_path / "a.csv", "text") == [Record(2, ("hello",))]
    assert read(tmp_path / "a.jsonl", "text") == [Record(1, ("hello",))]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"text": "a"', "is not JSON"),
        ('["a"]', "is not a JSON object"),
        ('"a"', "is not a JSON object"),
        ("[" * 100_000, "is not JSON"),
        ('{"text": ' + "1" * 5_000 + "}", "is not JSON"),
    ],
    ids=["torn", "list", "text", "deep", "huge"],
)
def test_a_line_that_is_no_row_is_a_problem_of_its_own(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n', "utf-8")
    first, broken, last = read(path, "text")
    assert (first.values, last.values) == (("a",), ("b",))
    assert broken.problem is not None
    assert broken.problem.startswith(problem)
    assert broken.place == 2


def test_a_line_that_is_not_utf_8_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
    assert read(tmp_path / "a.jsonl", "text")[0].problem is not None
    (tmp_path / "a.csv").write_bytes(b"text\ncafe\ncaf\xe9\nbar\n")
    whole, broken, last = read(tmp_path / "a.csv", "text")
    assert (whole, last) == (Record(2, ("cafe",)), Record(4, ("bar",)))
    assert broken.place == 3
    assert "not UTF-8" in str(find_problem(broken.values[0]))


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("latin-1", "ISO-8859-1"), ("cp1252", "WINDOWS-1252")],
)
def test_a_table_in_another_encoding_is_called_so_with_the_command_that_converts_it(
    encoding: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "our table.csv"
    text = "größe,text\n1,a\n".replace("a", "\u201ca\u201d" if encoding == "cp1252" else "a")
    path.write_bytes(text.encode(encoding))
    with pytest.raises(InvalidCorpus) as raised:
        list(open_source(path).columns()) and scan_source(
            open_source(path), ColumnOptions("text"), tell=print
        )
    converted = tmp_path / "our table.utf8.csv"
    command = f"iconv -f {name} -t UTF-8 '{path}' > '{converted}'"
    assert raised.value.message.endswith(command)
    subprocess.run(command, shell=True, check=True)
    assert converted.read_text("utf-8-sig") == text


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_rows_in_latin_1_are_not_skipped_but_converted(suffix: str, tmp_path: Path) -> None:
    rows = {".jsonl": '{"text": "cafe"}\n{"text": "caf\xe9"}\n', ".csv": "text\ncafe\ncaf\xe9\n"}[suffix]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(rows.encode("latin-1"))
    with pytest.raises(InvalidCorpus, match=r"Latin-1 .* iconv -f ISO-8859-1 -t UTF-8"):
        scan_source(open_source(path), ColumnOptions(), tell=print)
    # With characters of UTF-8 beside them, the bytes are damaged, and the rest must not be converted.
    path.write_bytes(rows.encode("latin-1") + rows.encode())
    with pytest.raises(InvalidCorpus, match=r"line \d .*--skip-invalid"):
        scan_source(open_source(path), ColumnOptions(), tell=print)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
def test_fields_are_parted_as_in_the_first_line(delimiter: str, tmp_path: Path) -> None:
    lines = [["id", "text"], ["1", '"a, b; c\td"'], ["2", "e"]]
    path = tmp_path / "a.csv"
    path.write_text("".join(delimiter.join(line) + "\r\n" for line in lines), "utf-8-sig")
    assert open_source(path).columns() == {"id": True, "text": True}
    assert [record.values for record in read(path, "id", "text")] == [("1", "a, b; c\td"), ("2", "e")]


def compress(path: Path, ending: str) -> Path:
    """The same file in two streams, one after the other, as programs that work in parallel write it."""
    codec, content = {".gz": "gzip", ".zst": "zstd"}[ending], path.read_bytes()
    compressed = path.with_name(path.name + ending)
    with compressed.open("wb") as file:
        file.writelines(pa.compress(half, codec, asbytes=True) for half in (content[:50], content[50:]))
    return compressed


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_compressed_files_are_read_as_what_is_in_them(suffix: str, ending: str, tmp_path: Path) -> None:
    path = compress(write_corpus(tmp_path / f"corpus{suffix}", ROWS), ending)
    assert [record.values for record in read(path, "text", "id")] == [
        (row["text"], row["id"]) for row in ROWS
    ]
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InvalidCorpus, match="cannot be read to its end: Truncated"):
        read(path, "text")


def test_gzip_needs_no_other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compress(write_corpus(tmp_path / "corpus.csv", ROWS), ".gz")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert len(read(path, "text")) == len(ROWS)
    path.write_bytes(path.read_bytes()[:-6] + b"\0" * 6)
    with pytest.raises(InvalidCorpus, match="cannot be read to its end: CRC check failed"):
        read(path, "text")
    (tmp_path / "text.csv.gz").write_text("text\nhello\n")
    with pytest.raises(InvalidCorpus, match="cannot be read to its end: Not a gzipped file"):
        read(tmp_path / "text.csv.gz", "text")


def test_a_row_of_too_few_fields_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1\n2,b\n", "utf-8")
    broken, whole = read(tmp_path / "a.csv", "text")
    assert broken.problem == "has 1 fields, but the first line has 2 columns"
    assert whole == Record(3, ("b",))


def test_a_quote_that_is_never_closed_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\nfine\n"open\n', "utf-8")
    with pytest.raises(InvalidCorpus, match="line 3 is not CSV"):
        read(tmp_path / "a.csv", "text")


def test_a_long_field_is_no_missing_quote(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.csv", [{"text": "x" * 300_000}])
    assert [len(record.values[0]) for record in read(path, "text")] == [300_000]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_texts_of_parquet_may_be_of_any_string_type(kind: Any, tmp_path: Path) -> None:
    table = pa.table({"text": pa.array(["a", None, "c"], kind), "n": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    assert source.columns() == {"text": True, "n": False}
    assert [record.values[0] for record in source.records(["text"])] == ["a", None, "c"]


@pytest.mark.parametrize("group_rows", [200, 20_000], ids=["many groups", "one group"])
def test_a_parquet_file_is_never_held_whole(group_rows: int, tmp_path: Path) -> None:
    dice = random.Random(1)
    table = pa.table({"text": [dice.randbytes(500).hex() for _ in range(20_000)]})
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path, row_group_size=group_rows, use_dictionary=False, compression="none")
    del table
    before = pa.total_allocated_bytes()
    held = max(pa.total_allocated_bytes() - before for _ in open_source(path).records(["text"]))
    assert held < path.stat().st_size / 4


def test_a_torn_parquet_file_is_refused(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "a.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidCorpus, match="cannot be read as a Parquet file"):
        open_source(path).columns()


def test_what_is_not_there_or_of_no_known_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCorpus, match="There is no file"):
        open_source(tmp_path / "a.csv")
    with pytest.raises(InvalidCorpus, match=r"\.jsonl, \.ndjson, \.csv, \.parquet"):
        open_source(tmp_path / "a.docx")
    with pytest.raises(InvalidCorpus, match=r"All but \.parquet may be followed by \.gz or \.zst"):
        open_source(tmp_path / "a.parquet.gz")


def test_without_pyarrow_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vecmill\[corpus\]'"):
        import_arrow()


@pytest.mark.parametrize("value", [None, 5, 1.5, True, ["a"], {"a": 1}, b"a", "half \ud800 of a pair"])
def test_what_is_no_text_is_a_problem(value: Any) -> None:
    assert find_problem(value)


@pytest.mark.parametrize("value", ["", "a", "漢", "\x00"])
def test_what_is_a_text_is_none(value: str) -> None:
    assert find_problem(value) is None


@given(st.lists(st.sampled_from([0, 1, 10, PART_CHARACTERS // 3, PART_CHARACTERS + 1]), max_size=700))
def test_parts_hold_each_record_once_within_bounds(lengths: list[int]) -> None:
    texts = {length: "x" * length for length in set(lengths)}
    records = [Record(place, (texts[length],)) for place, length in enumerate(lengths)]
    parts = list(cut_parts(records))
    assert [record for part in parts for record in part.records] == records
    assert [part.number for part in parts] == list(range(len(parts)))
    for part in parts:
        assert len(part) <= PART_TEXTS
        assert sum(map(len, part.texts[:-1])) < PART_CHARACTERS
