"""Multi-vector models give MultiVectorEncoder's rows and MaxSim, queries and documents in their own ways."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.published import Published, save_published
from support.task_models import save_colbert, save_task_model
from support.window_families import FAMILIES
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


# Shorter than a window, as long as two, and with texts that take all of it.
EXPANDED = {"strategy": "min", "attend": False, "length": 24}


def save_windowed(folder: Path, family: str, expansion: dict[str, Any] | None) -> Any:
    """A multi-vector model over an encoder with windows, which it returns."""
    class_name, settings = FAMILIES[family]
    encoder = folder.with_name("encoder")
    save_published(encoder, Published(class_name, "BertTokenizer", settings=settings))
    return save_colbert(folder, encoder, expansion)


@pytest.mark.xfail(strict=True, reason="a query without any key weighs all slots, padding too")
@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("family", ["modernbert", "mistral", "gemma3_both_ways"])
def test_expansions_beyond_the_window_get_the_reference_s_rows_in_any_company(
    family: str, open_mill: Open, tmp_path: Path
) -> None:
    oracle = save_windowed(tmp_path / "colbert", family, EXPANDED)
    mill = open_mill(tmp_path / "colbert")
    options = TextOptions(purpose=Purpose.QUERY)
    together = mill.run(EmbedTokens(tuple(TEXTS), options=options)).embeddings
    for text, rows in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(rows, np.asarray(oracle.encode_query([text])[0]), atol=TOLERANCE)
        (alone,) = mill.run(EmbedTokens((text,), options=options)).embeddings
        np.testing.assert_allclose(rows, alone, atol=TOLERANCE)


@pytest.mark.xfail(strict=True, reason="a query without any key weighs all slots, padding too")
@pytest.mark.promise("reference-embeddings")
def test_the_score_of_a_document_does_not_depend_on_the_others(open_mill: Open, tmp_path: Path) -> None:
    oracle = save_windowed(tmp_path / "colbert", "modernbert", EXPANDED)
    mill = open_mill(tmp_path / "colbert")
    query, document = "which", "the names of it"
    expected = oracle.similarity(oracle.encode_query([query]), oracle.encode_document([document]))[0]
    for others in ([], ["x"], ["the one " * 60]):
        found = mill.rerank(query, [document, *others]).scores[0]
        assert abs(found - float(expected[0])) <= TOLERANCE
