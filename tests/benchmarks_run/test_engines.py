"""What `bench.engines` says of invented measurements."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.contestants import ORACLE, Contestant, Entry, code_of
from bench.engines_report import Record, Turn, draw_plot, figures_of, write_table
from bench.rigs import remote_process
from vecmill.errors import SetupError, UnsupportedModel
from vecmill.verification.comparison import EmbeddingComparison

SHAPES = ((1, 16), (8, 64))


class Counter:
    def __init__(self, start: int) -> None:
        if start < 0:
            raise UnsupportedModel("A counter cannot start below zero.")
        self._count = start

    def add(self, count: int) -> int:
        self._count += count
        return self._count


def unloadable(cache_dir: Path) -> Contestant:
    raise AssertionError(f"{cache_dir}: what is invented is not loaded")


def record(engine: str, precision: str, rates: tuple[float, ...], cosine_min: float = 1.0) -> Record:
    turns = [Turn(rate / 2, rate, (1.5, 20.0)) for rate in rates]
    comparison = EmbeddingComparison(600, 1e-3, 1.0, cosine_min, 0.9995, 3, 0.975)
    return Record(Entry(engine, precision, unloadable), [2.5, 0.5], 250.0, comparison, turns)


def measured() -> list[Record]:
    refused = Record(Entry("openvino", "bf16", unloadable), refusal="There is no bf16.")
    return [
        record(ORACLE, "fp32", (50.0, 40.0, 60.0)),
        record("onnx", "fp32", (100.0, 80.0, 120.0)),
        record("onnx", "int8-fast", (180.0, 144.0, 240.0), 0.994),
        record("torch", "fp32", (60.0, 50.0, 70.0)),
        record("torch", "bf16", (170.0, 132.0, 180.0), 0.9996),
        record("torch-compile", "fp32", (80.0, 68.0, 90.0)),
        refused,
    ]


def test_ratios_are_those_of_each_round() -> None:
    figures = {figure.name: figure for figure in figures_of(measured())}
    int8 = figures["onnx int8-fast / onnx fp32"]
    assert int8.values == (1.8, 1.8, 2.0)
    assert int8.holds
    assert figures["torch bf16 / onnx fp32"].bound == 1.6
    assert figures["torch bf16, cosine, worst"].holds
    assert not figures["torch-compile fp32 / torch fp32"].holds
    assert not figures["torch-compile fp32 / sentence-transformers fp32"].holds
    assert not figures["torch-compile fp32 / onnx fp32"].holds


def test_another_checkout_is_compared_with_in_each_round() -> None:
    earlier = record("torch", "fp32", (50.0, 50.0, 70.0))
    earlier.entry = replace(earlier.entry, checkout=Path("before"))
    records = [*measured(), earlier]
    figures = {figure.name: figure for figure in figures_of(records)}
    assert figures["torch fp32 / before, texts/s"].values == (1.2, 1.0, 1.0)
    assert figures["torch fp32 / before, speed of shape 2"].values == (1.0, 1.0, 1.0)
    assert len(figures) == len(figures_of(measured())) + 3
    assert "| torch | fp32 before | " in write_table(records, SHAPES, cores=2)


def test_the_code_of_another_checkout_is_loaded(tmp_path: Path) -> None:
    package = tmp_path / "libs/vecmill/src/vecmill"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("NAME = 'another checkout'\n")
    with code_of(tmp_path):
        found = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import sys; sys.path[:] = {sys.path}; import vecmill; print(vecmill.NAME)",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    assert found.stdout == "another checkout\n"
    assert str(package.parent) not in sys.path


def test_nothing_is_asked_without_what_is_compared_with() -> None:
    assert figures_of([one for one in measured() if one.entry.engine != "onnx"]) == []


def test_the_table_has_a_cell_for_each_heading() -> None:
    lines = write_table(measured(), SHAPES, cores=2).splitlines()
    assert len(lines) == 2 + len(measured())
    assert len({line.count("|") for line in lines}) == 1
    assert lines[4] == (
        "| onnx | int8-fast | 90 | 180 | 1.80 | 1.50 | 20.00 | 0.99950 | 0.99400 | 0.975 | 250 | 2.5 | 0.5 |"
    )
    assert "refused: There is no bf16." in lines[-1]


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_plot(measured(), tmp_path / "engines.png")
    assert (tmp_path / "engines.png").read_bytes().startswith(b"\x89PNG")


def test_another_process_answers_by_name() -> None:
    with remote_process(Counter, 3) as ask:
        assert [ask("add", 1), ask("add", 2)] == [4, 6]


def test_what_refuses_to_load_in_another_process_says_why() -> None:
    with pytest.raises(SetupError, match="below zero"), remote_process(Counter, -1):
        pass
