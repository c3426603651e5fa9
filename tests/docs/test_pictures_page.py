"""The programs of docs/pictures.md rank drawn pictures as the model itself and transformers do.

The weights are random: what is nearest to a text has no meaning, but it is the same everywhere.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from support.drawn_pictures import draw_picture, write_picture
from support.drawn_shapes import draw_shapes
from support.source_tree import ROOT
from support.two_towers import embed_by_library, save_clip
from vecmill import EmbedPictures, Picture, SyncMill
from vecmill.commands.main import main

PAGE = ROOT / "docs/pictures.md"


def find_program(word: str, language: str = "python") -> str:
    """Return the only program of the page that has a word."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    [program] = [each for each in found if word in each]
    return str(program)


def test_a_folder_is_searched_in_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = save_clip(tmp_path / "clip-ViT-B-32")
    shapes = {f"{name.split('-')[1]}s/{name}.png": data for name, data in draw_shapes().items()}
    for name, data in shapes.items():
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pictures" / name).write_bytes(data)
    (command,) = find_program("vecmill embed", "sh").strip().splitlines()
    _, *arguments = shlex.split(command)
    done = CliRunner().invoke(main, arguments, prog_name="vecmill", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    table = parquet.read_table("pictures.parquet")
    assert table["id"].to_pylist() == sorted(shapes)
    program = find_program("parquet.read_table")
    assert sum(bool(line.strip()) and "import" not in line for line in program.splitlines()) <= 10
    exec(compile(program, str(PAGE), "exec"), {})
    with SyncMill(model) as mill:
        pictures = [Picture(shapes[name]) for name in sorted(shapes)]
        rows = mill.run(EmbedPictures(("a red circle", *pictures), normalize=True)).embeddings
    expected = rows[1:] @ rows[0]
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    best = expected.argsort()[::-1][:3]
    assert [name for name, _ in printed] == [sorted(shapes)[index] for index in best]
    np.testing.assert_allclose([float(value) for _, value in printed], expected[best], atol=1e-5)


def test_the_program_ranks_a_folder_of_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = save_clip(tmp_path / "clip-ViT-B-32")
    files = {
        f"{name}.png": write_picture(draw_picture("RGB", 40, 40 + name, name), "PNG") for name in range(5)
    }
    (tmp_path / "pictures").mkdir()
    for name, data in files.items():
        (tmp_path / "pictures" / name).write_bytes(data)
    exec(compile(find_program("EmbedPictures"), str(PAGE), "exec"), {})
    found = embed_by_library(model, ["a red circle"], list(files.values()))
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    best = [list(files)[index] for index in (unit[1:] @ unit[0]).argsort()[::-1][:3]]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [f"pictures/{name}" for name in best]


def test_the_program_chooses_between_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_clip(tmp_path / "clip-ViT-B-32")
    (tmp_path / "cat.png").write_bytes(write_picture(draw_picture("RGB", 40, 40), "PNG"))
    exec(compile(find_program("ClassifyByLabels"), str(PAGE), "exec"), {})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {label for label, _ in lines} == {"cat", "dog"}
    assert sum(float(score) for _, score in lines) == pytest.approx(1, abs=1e-5)
