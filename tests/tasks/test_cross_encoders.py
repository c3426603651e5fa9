"""Pairs get CrossEncoder's scores, however long they are."""

from pathlib import Path

import numpy as np
import pytest

from support.published import IDENTITY
from support.reference import load_reference
from support.task_models import save_again, save_task_model
from tasks.conftest import PAIRS, TEXTS, Open
from vecmill import SyncMill

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_task_model(
        tmp_path_factory.mktemp("models") / "reranker", "BertForSequenceClassification", num_labels=1
    )


@pytest.fixture(scope="module")
def mill(folder: Path, open_mill: Open) -> SyncMill:
    return open_mill(folder)


def test_scores_of_pairs_are_those_of_the_reference(folder: Path, mill: SyncMill) -> None:
    expected = load_reference(folder, "CrossEncoder").predict(PAIRS)
    found = [mill.rerank(query, [document]).scores[0] for query, document in PAIRS]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.2


def test_many_documents_share_batches_and_keep_their_scores(folder: Path, mill: SyncMill) -> None:
    query = "which of the names is it"
    expected = load_reference(folder, "CrossEncoder").predict([(query, text) for text in TEXTS])
    np.testing.assert_allclose(mill.rerank(query, TEXTS).scores, expected, atol=TOLERANCE)


def test_raw_scores_are_the_logits(folder: Path, mill: SyncMill) -> None:
    expected = load_reference(folder, "CrossEncoder").predict(PAIRS, activation_fn=IDENTITY)
    found = [mill.rerank(query, [document], raw_scores=True).scores[0] for query, document in PAIRS]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert min(expected) < 0


def test_the_two_texts_of_a_pair_are_told_apart(mill: SyncMill) -> None:
    one, other = mill.rerank("the name", ["a value"]).scores, mill.rerank("a value", ["the name"]).scores
    assert abs(one - other) > 1e-3


@pytest.mark.parametrize("activation", [IDENTITY, "torch.nn.modules.activation.Sigmoid"])
def test_the_models_own_activation_and_prompt_count(
    folder: Path, open_mill: Open, tmp_path: Path, activation: str
) -> None:
    prompts = {"ask": "in which of the "}
    options = {"activation_fn": activation, "prompts": prompts, "default_prompt_name": "ask"}
    oracle = save_again(tmp_path / "saved", folder, "CrossEncoder", **options)
    mill = open_mill(tmp_path / "saved")
    expected = oracle.predict(PAIRS)
    found = [mill.rerank(query, [document]).scores[0] for query, document in PAIRS]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    plain = load_reference(folder, "CrossEncoder").predict(PAIRS, activation_fn=activation)
    assert np.abs(expected - plain).max() > 1e-2
