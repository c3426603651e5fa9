"""The program of docs/pictures.md finds the picture that is nearest to a text, and its table is right."""

import re
from pathlib import Path

import numpy as np
import pytest

from support.drawn_pictures import draw_picture, write_picture
from support.source_tree import ROOT
from support.two_towers import embed_by_library, save_clip

PAGE = ROOT / "docs/pictures.md"


def run_program(place: int) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(compile(programs[place], str(PAGE), "exec"), {})


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
    run_program(0)
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
    run_program(1)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {label for label, _ in lines} == {"cat", "dog"}
    assert sum(float(score) for _, score in lines) == pytest.approx(1, abs=1e-5)
