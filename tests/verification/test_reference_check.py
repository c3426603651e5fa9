"""`vecmill check` says how far a model's rows are from sentence-transformers', and fails when they are."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from support.texts import short_texts
from support.tiny_models import save_tiny_bert
from vecmill.commands.check import compare_model
from vecmill.commands.main import main
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.errors import UnsupportedModel
from vecmill.models import locate_model
from vecmill.verification import reference
from vecmill.verification.check_inputs import CheckInputs, make_check_inputs
from vecmill.verification.comparison import EmbeddingComparison, compare_embeddings
from vecmill.verification.model_outputs import ModelOutputs, ModelProcessor, compute_singly
from vecmill.verification.reference import LoadedReference, load_reference, store_outputs
from vecmill.verification.reference_check import VerificationReport, compare_with_reference


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
    report = compare_model(str(directory), MillConfig(cache_dir=tmp_path / "cache"), count=30)
    assert report.reference.startswith("vecmill's own fp32 ONNX engine")
    assert isinstance(report.comparison, EmbeddingComparison)
    assert report.comparison.largest_difference < 1e-5
    assert report.comparison.cosine_mean == pytest.approx(1)


def test_a_reference_that_was_kept_is_asked_once(tmp_path: Path) -> None:
    description = describe_model(locate_model(save_tiny_bert(tmp_path / "model")))
    engine = FakeEngine(dim=description.dim)
    asked = []

    def compute(inputs: CheckInputs) -> ModelOutputs:
        asked.append(inputs)
        return compute_singly(engine, ModelProcessor.load(description), inputs)

    texts = short_texts(seed=2, count=12)
    kept = store_outputs(LoadedReference("a reference", compute), description, texts)
    for seed in range(3):
        report = compare_with_reference(description, engine, kept, texts, seed=seed)
        assert (report.reference, report.comparison.largest_difference) == ("a reference", 0.0)
    assert asked == [make_check_inputs(description, texts)]
    with pytest.raises(ValueError, match="other inputs"):
        compare_with_reference(description, engine, kept, texts[:-1])


def test_where_numbers_are_large_the_tolerance_is_of_the_largest() -> None:
    reference = 1e4 * np.random.default_rng(4).standard_normal((5, 8)).astype(np.float32)
    report = VerificationReport(
        "a model", "an engine", "fp32", "it", compare_embeddings(reference + 0.1, reference)
    )
    assert report.is_within(1e-4)
    assert not report.is_within(1e-6)
    small = VerificationReport(
        "a model", "an engine", "fp32", "it", compare_embeddings(reference / 1e4 + 1e-3, reference / 1e4)
    )
    assert not small.is_within(1e-4)


def test_a_model_that_the_reference_cannot_load_is_refused_in_a_sentence(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    description = describe_model(locate_model(directory))
    (directory / "modules.json").write_text("[")
    with pytest.raises(UnsupportedModel, match=r"The reference, sentence-transformers .*, cannot load"):
        load_reference(description, tmp_path / "cache")
