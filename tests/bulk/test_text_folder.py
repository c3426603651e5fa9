"""A folder of text files is a table of their paths and contents; what is no text is a row with a reason."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from support.drawn_pictures import draw_picture, write_picture
from vecmill import SyncMill
from vecmill.bulk.local_inputs import open_input
from vecmill.bulk.picture_folder import FolderOfPictures
from vecmill.bulk.text_folder import MOST_BYTES, FolderOfTexts
from vecmill.commands.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "b.md": "# Two",
        "a/one.txt": "One",
        "a/three.RST": "\ufeffThree",
        ".hidden": "x",
    }.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text, "utf-8")
    return tmp_path / "docs"


def test_the_rows_are_the_paths_and_texts_in_order(folder: Path) -> None:
    source = open_input(folder)
    assert isinstance(source, FolderOfTexts)
    assert [record.values for record in source.records(("text", "id"))] == [
        ("One", "a/one.txt"),
        ("Three", "a/three.RST"),
        ("# Two", "b.md"),
    ]


def test_other_files_are_rows_with_a_reason(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "c.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "d.txt").write_bytes(b"caf\xe9")
    (folder / "e.png").write_bytes(b"")
    (folder / "f.txt").write_text(" \n")
    os.mkfifo(folder / "g.txt")
    with (folder / "h.txt").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    (folder / "i.md").symlink_to(folder / "nowhere")
    problems = [record.problem for record in open_input(folder).records(("text",))][3:]
    assert problems == [
        f"('c.txt') leads out of {folder}",
        "('d.txt') is not UTF-8",
        "('e.png') has none of the extensions .txt, .md, .markdown, .rst",
        "('f.txt') is empty",
        "('g.txt') is no file, but a folder, a pipe or a device",
        "('h.txt') has more than 33,554,432 bytes",
        "('i.md') cannot be read: No such file or directory",
    ]


def test_the_digest_is_that_of_paths_and_contents(folder: Path) -> None:
    first = open_input(folder).sha256()
    assert open_input(folder).sha256() == first
    (folder / "b.md").write_text("# Two!")
    changed = open_input(folder).sha256()
    (folder / "b.md").rename(folder / "c.md")
    assert len({first, changed, open_input(folder).sha256()}) == 3


def test_a_folder_is_of_what_most_of_its_files_are(folder: Path) -> None:
    picture = write_picture(draw_picture("RGB", 8, 8), "PNG")
    for number in range(2):
        (folder / f"{number}.png").write_bytes(picture)
    assert isinstance(open_input(folder), FolderOfTexts)
    (folder / "2.png").write_bytes(picture)
    assert isinstance(open_input(folder), FolderOfPictures)


def test_a_folder_is_embedded_and_its_invalid_files_are_named(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    (folder / "logo.svg").write_text("<svg/>")
    run = ["embed", str(folder), "-o", str(output), "--copy-column", "text"]
    refused = CliRunner().invoke(main, run, prog_name="vecmill")
    assert refused.exit_code != 0
    assert "file 4 ('logo.svg') has none of the extensions" in refused.output
    inside = CliRunner().invoke(main, ["embed", str(folder), "-o", str(folder / "o.parquet")])
    assert "is in the folder of the input" in inside.output
    done = CliRunner().invoke(main, [*run, "--skip-invalid"], prog_name="vecmill", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    table = parquet.read_table(output)
    assert table["id"].to_pylist() == ["a/one.txt", "a/three.RST", "b.md"]
    assert table["text"].to_pylist() == ["One", "Three", "# Two"]
    with SyncMill() as mill:
        expected = mill.embed(["One", "Three", "# Two"])
    assert abs(table["embedding"].to_pylist() - expected).max() < 1e-6


def test_a_changed_file_alone_is_embedded_again(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    run = ["embed", str(folder), "-o", str(output), "--update"]
    CliRunner().invoke(main, run, catch_exceptions=False)
    (folder / "b.md").write_text("# Two, changed")
    done = CliRunner().invoke(main, run, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    with SyncMill() as mill:
        expected = mill.embed(["One", "Three", "# Two, changed"])
    assert abs(parquet.read_table(output)["embedding"].to_pylist() - expected).max() < 1e-6
