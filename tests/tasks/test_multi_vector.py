"""Multi-vector models give MultiVectorEncoder's rows and MaxSim, queries and documents in their own ways."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.task_models import save_colbert, save_task_model
from tasks.conftest import TEXTS, Open
from vecmill import Purpose, SyncMill, TextOptions
from vecmill.errors import UnsupportedTask
from vecmill.requests import EmbedTokens

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_task_model(tmp_path_factory.mktemp("models") / "encoder", "BertModel")


@pytest.fixture(
    scope="module",
    params=[
        None,
        {"strategy": "fixed", "attend": False, "length": 16},
        {"strategy": "fixed", "attend": True, "length": 16},
        {"strategy": "min", "attend": False, "length": 16},
    ],
    ids=str,
)
def colbert(
    request: pytest.FixtureRequest, encoder: Path, open_mill: Open, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, SyncMill]:
    folder = tmp_path_factory.mktemp("models") / "colbert"
    oracle = save_colbert(folder, encoder, request.param)
    return oracle, open_mill(folder)


def test_each_token_gets_the_reference_s_row(colbert: tuple[Any, SyncMill]) -> None:
    oracle, mill = colbert
    for side, encode in ((Purpose.QUERY, oracle.encode_query), (Purpose.DOCUMENT, oracle.encode_document)):
        found = mill.run(EmbedTokens(tuple(TEXTS), options=TextOptions(purpose=side))).embeddings
        for text, rows in zip(TEXTS, found, strict=True):
            expected = np.asarray(encode([text])[0])
            assert rows.shape == expected.shape
            np.testing.assert_allclose(rows, expected, atol=TOLERANCE)
    with pytest.raises(UnsupportedTask, match="an embedding for each token"):
        mill.classify(["a text"])


def test_documents_are_ranked_by_their_best_matches(colbert: tuple[Any, SyncMill]) -> None:
    oracle, mill = colbert
    query = "which of the names is it"
    expected = oracle.similarity(oracle.encode_query([query]), oracle.encode_document(TEXTS))[0].numpy()
    found = mill.rerank(query, TEXTS).scores
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.1
