"""Pictures as inputs: folders, paths and bytes, in a fixed order, however hostile the folder is."""

import asyncio
import os
import re
import socket
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from support.corpora import write_corpus
from vecmill.bulk.input_scan import ColumnOptions, InputScan, has_changed, scan_source, valid_records
from vecmill.bulk.local_inputs import open_input
from vecmill.bulk.picture_inputs import EmbedInput, PictureFile, PictureRoom, data_uri
from vecmill.bulk.pipeline import CALL_BYTES, cut_calls
from vecmill.bulk.records import BYTES_A_CHARACTER, PART_CHARACTERS, Record, cut_parts
from vecmill.bulk.sources import BATCH_BYTES, BATCH_ROWS, count_batch_rows
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.values.picture import Picture

# What begins as a picture, and is none: only a decoder tells.
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
GIF = b"GIF89a" + bytes(20)


def scan(path: Path, **options: Any) -> InputScan:
    return scan_source(open_input(path), ColumnOptions(**options), tell=print)


def read(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    """The values of all valid rows, with the content of files."""
    source = open_input(path)
    columns = scan(path, **options).columns
    return [(load(record.values[0]), *record.values[1:]) for record in valid_records(source, columns)]


def load(value: EmbedInput) -> bytes:
    assert not isinstance(value, str)
    return (value.read() if isinstance(value, PictureFile) else value).data


def write(folder: Path, *names: str, data: bytes = PNG) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def problem_of(path: Path, **options: Any) -> str:
    with pytest.raises(InvalidCorpus) as caught:
        scan(path, **options)
    return caught.value.message


def test_a_folder_has_its_pictures_in_the_order_of_paths_by_their_content(tmp_path: Path) -> None:
    names = ["a/z.txt", "a.png", "b/1/2.png", "b/10.png", "b/2.gif", "c", "é\n.png"]
    write(tmp_path, *reversed(names))
    write(tmp_path, "b/2.gif", data=GIF)
    write(tmp_path, ".hidden.png", ".git/a.png", "b/.DS_Store", data=b"x")
    rows = read(tmp_path)
    assert [name for _, name in rows] == sorted(names, key=lambda name: name.split("/"))
    assert [data for data, name in rows if name.endswith("gif")] == [GIF]
    assert scan(tmp_path).columns.copies == ("id",)


def test_what_is_no_picture_is_named_and_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "a.png", "z.png")
    folder, outside = tmp_path / "in", tmp_path / "outside.png"
    write(tmp_path, "outside.png")
    write(folder, "a.png", "z.png")
    write(folder, "b.png", data=b"")
    write(folder, "c.png", data=b"text")
    (folder / "d.png").symlink_to("d.png")
    (folder / "e.png").symlink_to("../outside.png")
    (folder / "f").symlink_to(".")
    os.mkfifo(folder / "g.png")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "h.png"))
    with (folder / "i.png").open("wb") as file:
        file.write(PNG)
        file.truncate(20 * 2**20 + 1)
    write(folder, os.fsdecode(b"j\xff\n.png"))
    (folder / "k.png").symlink_to("missing.png")
    (folder / "l.png").symlink_to("a.png")
    expected = {
        "b.png": "is empty",
        "c.png": "is no PNG, JPEG, WebP or GIF file",
        "d.png": "cannot be read: Too many levels of symbolic links",
        "e.png": re.escape(f"leads out of {folder}"),
        "f": "is no file, but a folder, a pipe or a device",
        "g.png": "is no file, but a folder, a pipe or a device",
        "h.png": "cannot be read: No such device or address",
        "i.png": "has 20,971,521 bytes: at most 20,971,520 are accepted",
        r"j\udcff\n.png": "has half of a surrogate pair or a byte that is not UTF-8",
        "k.png": "cannot be read: No such file or directory",
    }
    for place, (name, problem) in enumerate(expected.items(), 2):
        message = rf"file {place} \('{re.escape(name)}'\) {problem}"
        assert re.search(message, problem_of(folder)), problem_of(folder)
        (folder / os.fsdecode(b"j\xff\n.png") if name[0] == "j" else folder / name).unlink()
        write(folder, f"{name[0]}.png")  # a good one in its place
    assert len(read(folder)) == 13
    os.remove(outside)
    write(folder, "c.png", data=b"text")
    found = scan(folder, skips_invalid=True)
    assert (found.rows, found.skipped) == (12, 1)
    assert capsys.readouterr().out == "Left out: file 3 ('c.png') is no PNG, JPEG, WebP or GIF file.\n"


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    assert "has no row with a picture" in problem_of(tmp_path)
    write(tmp_path, "a.bin", "b.bin", data=b"text")
    assert "file 1 ('a.bin') is no PNG" in problem_of(tmp_path)
    assert "has no row with a picture" in problem_of(tmp_path, skips_invalid=True)
    with pytest.raises(InvalidConfig, match=r"--text-column is for texts"):
        scan(tmp_path, text_column="id")
    with pytest.raises(InvalidConfig, match=r"--picture-column is 'x', but the columns of .* are 'id'"):
        scan(tmp_path, picture_column="x")


@pytest.mark.full
def test_a_folder_deeper_than_python_nests_calls_is_read(tmp_path: Path) -> None:
    depth = 1_100
    deepest = str(tmp_path / "/".join("d" * depth))
    os.makedirs(deepest[: len(str(tmp_path)) + 1_000])  # in steps, since it nests calls too
    os.makedirs(deepest)
    write(tmp_path, f"{'d/' * depth}a.png")
    assert [name for _, name in read(tmp_path)] == [f"{'d/' * depth}a.png"]
    os.unlink(f"{deepest}/a.png")
    os.removedirs(deepest)  # other programs cannot


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_paths_of_rows_are_relative_to_the_file_and_stay_in_its_folder(suffix: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(tmp_path, "secret.png", "in/a.png", "in/sub/b.png")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    good = ["a.png", "sub/b.png", "sub/../a.png", str(folder / "a.png")]
    paths = write_corpus(folder / f"rows{suffix}", [{"id": path, "file": path} for path in good])
    assert [name for _, name in read(paths, picture_column="file")] == good
    for bad in ("../secret.png", str(tmp_path / "secret.png"), "link.png", "sub/../../secret.png"):
        paths = write_corpus(folder / f"bad{suffix}", [{"file": "a.png"}, {"file": bad}])
        assert f"('{bad}') leads out of {folder}" in problem_of(paths, picture_column="file")
    rows = [{"file": "secret.png"}, {"file": "in/link.png"}, {"file": str(folder / "a.png")}]
    paths = write_corpus(folder / f"named{suffix}", rows)
    assert len(read(paths, picture_column="file", picture_folder=tmp_path)) == 3


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        (None, "has no picture"),
        (5, "has neither a path nor bytes"),
        ({"bytes": None, "path": None}, "has no picture"),
        ("https://example.org/a.png", "is a URL"),
        ("data:image/png;base64,AAAA", "is a URL"),
        ("a\0.png", "is no path"),
        ("", "is no file"),
        ("a" * 5_000, "cannot be read: File name too long"),
        ("\ud800.png", "has half of a surrogate pair"),
    ],
)
def test_a_row_that_names_no_picture_says_why(cell: Any, problem: str, tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "rows.jsonl", [{"file": cell}])
    found = problem_of(paths, picture_column="file")
    assert problem in found
    assert len(found) < 500


def test_bytes_in_parquet_are_pictures_also_in_the_form_of_hugging_face(tmp_path: Path) -> None:
    write(tmp_path, "beside.gif", data=GIF)
    plain = tmp_path / "plain.parquet"
    parquet.write_table(pa.table({"image": [PNG, GIF], "id": [7, 8]}), plain)
    assert read(plain, picture_column="image") == [(PNG, 7), (GIF, 8)]
    cells = [{"bytes": PNG, "path": "any name"}, {"bytes": None, "path": "beside.gif"}]
    hugging = write_corpus(tmp_path / "hf.parquet", [{"image": cell} for cell in cells])
    assert read(hugging, picture_column="image") == [(PNG,), (GIF,)]
    parquet.write_table(pa.table({"image": [PNG, b"", b"text"]}), plain)
    assert "row 2 has a picture that is empty" in problem_of(plain, picture_column="image")
    assert scan(plain, picture_column="image", skips_invalid=True).skipped == 2
    with pytest.raises(InvalidConfig, match=r"'image'.*holds no strings"):
        scan(plain, text_column="image")


def test_large_pictures_are_read_from_parquet_few_at_a_time(tmp_path: Path) -> None:
    path, texts = tmp_path / "large.parquet", tmp_path / "texts.parquet"
    cells = [{"bytes": PNG + os.urandom(2**20), "path": "a"} for _ in range(24)]
    parquet.write_table(pa.table({"id": range(24), "image.x": ["a"] * 24, "image": cells}), path)
    metadata = parquet.read_metadata(path)
    assert metadata.num_row_groups == 1
    assert count_batch_rows(metadata, ["image", "id"]) == BATCH_BYTES // 2**20 - 1
    assert count_batch_rows(metadata, ["id", "image.x"]) == BATCH_ROWS
    assert [len(data) for data, _ in read(path, picture_column="image")] == [len(cells[0]["bytes"])] * 24
    write_corpus(texts, [{"text": "a"}] * 3)
    assert count_batch_rows(parquet.read_metadata(texts), ["text"]) == BATCH_ROWS


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCorpus, match=r"There is no file and no folder .*/pictures\."):
        open_input(tmp_path / "pictures")


def test_a_file_that_changes_or_vanishes_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, "a.png", "b.png")
    source, found = open_input(tmp_path), scan(tmp_path)
    assert not has_changed(source, found)
    first, second = (record.values[0] for record in valid_records(source, found.columns))
    (tmp_path / "a.png").write_bytes(PNG + b"more")
    with pytest.raises(InvalidCorpus, match=r"'a\.png' cannot be read any more: it has changed"):
        first.read()
    assert has_changed(source, found)
    found = scan(tmp_path)
    (tmp_path / "b.png").unlink()
    with pytest.raises(InvalidCorpus, match=r"'b\.png' cannot be read any more: No such file"):
        second.read()
    assert has_changed(source, found)
    write(tmp_path, "b.png")
    assert has_changed(source, found) == (os.stat(tmp_path / "b.png").st_mtime_ns != second.changed_ns)


def test_files_that_rows_name_are_a_part_of_the_input(tmp_path: Path) -> None:
    write(tmp_path, "a.png")
    paths = write_corpus(tmp_path / "rows.csv", [{"file": "a.png"}])
    source, found = open_input(paths), scan(paths, picture_column="file")
    assert not has_changed(source, found)
    os.utime(tmp_path / "a.png", ns=(1, 1))
    assert has_changed(source, found)


def test_parts_and_calls_are_bounded_in_bytes() -> None:
    large = [Record(place, (Picture(bytes(2**20)),)) for place in range(1, 31)]
    parts = list(cut_parts(large))
    assert [record for part in parts for record in part.records] == large
    assert all(len(part) <= PART_CHARACTERS * BYTES_A_CHARACTER // 2**20 + 1 for part in parts)
    calls = cut_calls(large, 16)
    assert [record for call in calls for record in call] == large
    assert {len(call) for call in calls[:-1]} == {CALL_BYTES // 2**20}
    texts = [Record(place, ("text " * 10**6,)) for place in range(5)]
    assert list(map(len, cut_calls(texts, 2))) == [2, 2, 1]
    assert cut_calls([], 2) == []


async def test_calls_hold_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    size = 2**20
    write(tmp_path, *(f"{number}.png" for number in range(64)), data=PNG + bytes(size - len(PNG)))
    source = open_input(tmp_path)
    records = list(valid_records(source, scan(tmp_path).columns))
    room, held, most = PictureRoom(4 * size), 0, 0

    async def call(record: Record) -> None:
        nonlocal held, most
        async with room.read([record.values[0]]) as inputs:
            held += sum(map(len, inputs))
            most = max(most, held)
            await asyncio.sleep(0)
            held -= sum(map(len, inputs))

    await asyncio.gather(*map(call, records))
    assert most == 4 * size
    async with room.read([record.values[0] for record in records]) as inputs:  # larger than the room, alone
        assert len(inputs) == len(records)


def test_memory_does_not_grow_with_the_folder(tmp_path: Path) -> None:
    peaks = []
    for count in (100, 600):
        for number in range(count):
            (tmp_path / str(count) / f"{number // 100:03}").mkdir(parents=True, exist_ok=True)
            (tmp_path / str(count) / f"{number // 100:03}" / f"{number}.png").write_bytes(PNG)
        tracemalloc.start()
        assert scan(tmp_path / str(count)).rows == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 2**16


def test_a_data_uri_names_the_type_of_the_content() -> None:
    assert data_uri(Picture(GIF)).startswith("data:image/gif;base64,R0lGODlh")
    assert data_uri(Picture(b"text")).startswith("data:application/octet-stream;base64,")
