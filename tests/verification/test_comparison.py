"""The comparison tells rounding from a wrong row."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from support.texts import short_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands.check import model_comparison
from vecmill.commands.check.model_comparison import compare_model, describe_verdict, is_accepted
from vecmill.commands.main import main
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import UnsupportedModel
from vecmill.models import Task, locate_model
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding
from vecmill.values.engine_plan import Precision
from vecmill.values.sample_texts import ODD_TEXTS, sample_texts
from vecmill.verification import reference
from vecmill.verification.comparison import (
    EmbeddingComparison,
    ScoreComparison,
    VerificationReport,
    compare_embeddings,
    compare_outputs,
    compare_with_reference,
    find_recall,
)
from vecmill.verification.model_outputs import (
    CheckInput,
    CheckInputs,
    ModelOutputs,
    ModelProcessor,
    compute_singly,
    make_check_inputs,
)
from vecmill.verification.reference import LoadedReference, load_reference, store_outputs

ROWS = np.random.default_rng(3).standard_normal((60, 32)).astype(np.float32)


def test_equal_rows_agree_in_everything() -> None:
    found = compare_embeddings(ROWS, ROWS)
    assert (found.count, found.largest_difference, found.recall_at_10) == (60, 0.0, 1.0)
    assert found.cosine_min == pytest.approx(1.0)


def test_one_wrong_row_is_named() -> None:
    wrong = ROWS.copy()
    wrong[17] = ROWS[18]
    found = compare_embeddings(wrong, ROWS)
    assert found.worst_text == 17
    assert found.cosine_min < 0.9 < found.cosine_mean
    assert found.recall_at_10 is not None
    assert found.recall_at_10 < 1


def test_neighbours_are_counted_by_hand() -> None:
    # On a circle the ten nearest are five on either purpose; turning one text to the far purpose costs it all
    # ten, and its old neighbours one each.
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    turned = circle.copy()
    turned[0] = -circle[0] + np.float32(1e-3)
    found = compare_embeddings(turned, circle)
    assert found.recall_at_10 is not None
    lost = round((1 - found.recall_at_10) * 600)
    assert 20 <= lost <= 32  # its own 10, its 10 old neighbours', and those whom it now displaces


def test_rows_that_are_not_finite_are_infinitely_far() -> None:
    broken = ROWS.copy()
    broken[0, 0] = np.nan
    assert compare_embeddings(broken, ROWS).largest_difference == np.inf


def test_a_handful_of_texts_says_nothing_of_neighbours() -> None:
    assert compare_embeddings(ROWS[:20], ROWS[:20]).recall_at_10 is None


def test_rows_of_zeros_agree_with_rows_of_zeros() -> None:
    zeros = np.zeros((3, 4), np.float32)
    assert compare_embeddings(zeros, zeros).cosine_min == 1.0
    for one, other in ((zeros, ROWS[:3, :4]), (ROWS[:3, :4], zeros)):
        assert compare_embeddings(one, other).cosine_mean == 0.0


def test_sample_texts_are_different_and_the_same_each_time() -> None:
    texts = sample_texts(200)
    assert texts == sample_texts(200)
    assert len(set(texts)) == 200
    assert texts[: len(ODD_TEXTS)] == list(ODD_TEXTS)
    assert sample_texts(200, seed=1) != texts


def test_the_best_are_counted_by_hand() -> None:
    theirs = np.tile(np.arange(30, dtype=np.float32), (2, 1))
    ours = theirs.copy()
    ours[1, 19] = 100  # the eleventh of the second query comes first, and drives out its tenth
    assert find_recall(theirs, theirs) == 1
    assert find_recall(ours, theirs) == pytest.approx(19 / 20)


def test_a_choice_among_equals_is_no_loss() -> None:
    theirs = np.zeros((1, 30), np.float32)
    assert find_recall(np.arange(30, dtype=np.float32)[None], theirs) == 1


def scores(values: NDArray[Any]) -> tuple[FloatArray, ...]:
    return tuple(values.astype(np.float32).reshape(len(values), 1, -1))


def test_a_reranker_is_judged_by_each_query_s_best_documents() -> None:
    pairs = tuple(CheckInput(query, str(index)) for query in ("one", "other") for index in range(25))
    right = np.arange(50, dtype=np.float32) / 50
    wrong = right.copy()
    wrong[:25] = wrong[:25][::-1]
    found = compare_outputs(Task.RERANK, pairs, scores(wrong), scores(right))
    assert isinstance(found, ScoreComparison)
    # Of 25, the ten best of one order are the ten worst of the other.
    assert (found.count, found.worst_input, found.agreement) == (50, 0, 0.5)
    assert found.largest_difference == pytest.approx(24 / 50)
    few = compare_outputs(Task.RERANK, pairs[:5], scores(wrong[:5]), scores(right[:5]))
    assert isinstance(few, ScoreComparison)
    assert few.agreement is None


def test_a_classifier_is_judged_by_the_best_label() -> None:
    right = np.eye(4, dtype=np.float32)
    wrong = right.copy()
    wrong[2] = np.nan
    wrong[3] = right[0]
    found = compare_outputs(Task.CLASSIFY, (CheckInput("a"),) * 4, scores(wrong), scores(right))
    assert isinstance(found, ScoreComparison)
    assert (found.largest_difference, found.worst_input, found.agreement) == (np.inf, 2, 0.5)


@pytest.mark.parametrize("task", [Task.CLASSIFY_TOKENS, Task.MULTI_VECTOR])
def test_another_number_of_tokens_is_infinitely_far(task: Task) -> None:
    right = tuple(ROWS[start : start + 3] for start in range(0, 60, 3))
    wrong = (*right[:7], right[7][:2], *right[8:])
    inputs: CheckInputs = (CheckInput("a"),) * len(right)
    assert compare_outputs(task, inputs, right, right).largest_difference == 0
    found = compare_outputs(task, inputs, wrong, right)
    assert found.largest_difference == np.inf
    assert (found.worst_text if isinstance(found, EmbeddingComparison) else found.worst_input) == 7


def test_sparse_rows_are_compared_with_their_zeros() -> None:
    one = SparseEmbedding(np.array([2, 900_000]), np.array([1, 2], np.float32))
    other = SparseEmbedding(np.array([2, 5]), np.array([1, 0.5], np.float32))
    none = SparseEmbedding(np.array([], np.int64), np.array([], np.float32))
    inputs: CheckInputs = (CheckInput("a"),) * 3
    same = compare_outputs(Task.SPARSE, inputs, (one, other, none), (one, other, none))
    assert isinstance(same, EmbeddingComparison)
    assert (same.largest_difference, same.scale) == (0, 2)
    assert same.cosine_min == pytest.approx(1)
    found = compare_outputs(Task.SPARSE, inputs, (one, other, none), (other, other, none))
    assert isinstance(found, EmbeddingComparison)
    assert (found.largest_difference, found.worst_text) == (2, 0)
    assert found.cosine_min == pytest.approx(1 / np.sqrt(5 * 1.25))


def test_the_report_names_both_sides_and_is_within_rounding(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    result = CliRunner().invoke(
        main, ["check", str(directory), "--count", "40", "--cache-dir", str(tmp_path / "cache")]
    )
    assert result.exit_code == 0, result.output
    assert "engine onnx, fp32, against sentence-transformers" in result.output
    assert "verdict             equal to the reference: the limit is 1e-04" in result.output
    assert "vecmill's own engine" not in result.output
    assert "recall@10           1.0" in result.output


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
    assert "verdict             different from the reference" in result.output


@pytest.mark.skipif(
    Precision.INT8 not in OnnxEngine.find_capabilities().devices["cpu"], reason="no int8 on this processor"
)
def test_a_reduced_precision_is_judged_by_its_own_limit(tmp_path: Path) -> None:
    wide = TinyBert(config={"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1})
    directory = save_tiny_bert(tmp_path / "model", wide)
    options = ["--precision", "int8", "--count", "40", "--cache-dir", str(tmp_path / "cache")]
    result = CliRunner().invoke(main, ["check", str(directory), *options])
    verdict = result.output.partition("verdict             ")[2]
    assert verdict.startswith("within the limit of int8: the lowest cosine is 0.99"), result.output
    assert "and 0.99 is accepted; " in verdict
    assert "% of the best 10 are kept (recall)" in verdict
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("precision", "cosine", "accepted"),
    [("int8", 0.991, True), ("int8", 0.989, False), ("bf16", 0.9985, False), ("fp32", 0.991, False)],
)
def test_each_precision_has_its_limit(precision: str, cosine: float, accepted: bool) -> None:
    angle = np.arccos(cosine)
    expected = np.tile(np.array([1.0, 0.0], np.float32), (30, 1))
    found = np.tile(np.array([np.cos(angle), np.sin(angle)], np.float32), (30, 1))
    report = VerificationReport("model", "onnx", precision, "reference", compare_embeddings(found, expected))
    assert is_accepted(report) is accepted
    within = "within" if accepted else "beyond"
    least = f"{within} the limit of {precision}: the lowest cosine is {cosine:.5f}"
    words = describe_verdict(report)
    assert words.startswith("different from the reference" if precision == "fp32" else least)


def test_a_comparison_with_our_own_engine_says_what_it_cannot_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reference, model_comparison):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    options = ["--count", "30", "--cache-dir", str(tmp_path / "cache")]
    result = CliRunner().invoke(main, ["check", str(save_tiny_bert(tmp_path / "model")), *options])
    assert result.exit_code == 0, result.output
    assert "no error that both have in common" in result.output
    assert "pip install sentence-transformers" in result.output


def test_without_the_oracle_our_own_engine_is_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "find_spec", lambda name: None)
    directory = save_tiny_bert(tmp_path / "model")
    (report,) = compare_model(str(directory), MillConfig(cache_dir=tmp_path / "cache"), count=30).reports
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
