"""`vecmill check` says how far a model's rows are from sentence-transformers', and fails when they are."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from support.tiny_models import save_tiny_bert
from vecmill.cli import main
from vecmill.fidelity import reference
from vecmill.fidelity.command import compare_model


def test_the_report_names_both_sides_and_is_within_rounding(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    result = CliRunner().invoke(
        main, ["check", str(directory), "--count", "40", "--cache-dir", str(tmp_path / "cache")]
    )
    assert result.exit_code == 0, result.output
    assert "engine onnx, fp32, against sentence-transformers" in result.output
    assert "neighbours kept     1.0" in result.output


def test_your_own_texts_are_read_a_line_each(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    texts = tmp_path / "texts"
    texts.write_text("one text\nanother\n\n", encoding="utf-8")
    options = ["--texts", str(texts), "--cache-dir", str(tmp_path / "cache")]
    result = CliRunner().invoke(main, ["check", str(directory), *options])
    assert "texts               3" in result.output
    assert "too few texts" in result.output


def test_wrong_rows_fail(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    options = ["--engine", "fake", "--count", "30", "--cache-dir", str(tmp_path / "cache")]
    result = CliRunner().invoke(main, ["check", str(directory), *options])
    assert result.exit_code == 1
    assert "engine fake" in result.output


def test_without_the_oracle_our_own_engine_is_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "find_spec", lambda name: None)
    directory = save_tiny_bert(tmp_path / "model")
    report = compare_model(str(directory), count=30, cache_dir=tmp_path / "cache")
    assert report.reference.startswith("vecmill's own fp32 ONNX engine")
    assert report.comparison.largest_difference < 1e-5
    assert np.isfinite(report.comparison.cosine_mean)
