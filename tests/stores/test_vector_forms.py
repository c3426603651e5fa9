"""Sparse vectors and vectors of tokens: where a store has them, and where it is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_client import QdrantClient

from support.described_models import describe_with_heads
from vecmill import EmbedSparse, EmbedTokens, InvalidConfig, Mill, MillConfig, embed_to_store
from vecmill.bulk import local
from vecmill.stores.vector_store import CollectionAbout

TEXTS = ["cats sleep", "dogs bark at night", "a moon"]
ROWS = [{"id": at, "text": text} for at, text in enumerate(TEXTS)]
CONFIG = MillConfig(engine="fake")


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embed with a model that gives all three forms."""
    monkeypatch.setattr(local, "describe_model", lambda *_: describe_with_heads())


def points_in(folder: Path) -> dict[str, Any]:
    client = QdrantClient(path=str(folder))
    points, _ = client.scroll("docs", with_payload=True, with_vectors=True)
    client.close()
    return {point.payload["id"]: point.vector for point in points if point.payload is not None}


async def test_sparse_vectors_are_those_of_the_model(fast_folder: Path) -> None:
    to = f"qdrant:{fast_folder}/docs"
    assert embed_to_store(ROWS, to, source="s", config=CONFIG, vectors="sparse").embedded == 3
    assert embed_to_store(ROWS, to, source="s", config=CONFIG, vectors="sparse").unchanged == 3
    async with Mill(describe_with_heads(), CONFIG) as mill:
        expected = (await mill.run(EmbedSparse(tuple(TEXTS)))).embeddings
    found = points_in(fast_folder)
    for at, embedding in enumerate(expected):
        sparse = found[str(at)]["sparse"]
        assert sparse.indices == embedding.columns.tolist()
        np.testing.assert_allclose(sparse.values, embedding.values)


async def test_vectors_of_tokens_are_those_of_the_model(fast_folder: Path) -> None:
    to = f"qdrant:{fast_folder}/docs"
    embed_to_store(ROWS, to, source="s", config=CONFIG, vectors="tokens", distance="dot")
    async with Mill(describe_with_heads(), CONFIG) as mill:
        expected = (await mill.run(EmbedTokens(tuple(TEXTS)))).embeddings
    found = points_in(fast_folder)
    for at, embedding in enumerate(expected):
        np.testing.assert_allclose(found[str(at)], embedding, rtol=1e-6)


def test_another_form_is_another_space(fast_folder: Path) -> None:
    to = f"qdrant:{fast_folder}/docs"
    embed_to_store(ROWS, to, source="s", config=CONFIG, vectors="sparse")
    with pytest.raises(InvalidConfig, match="has vectors of the space s1-"):
        embed_to_store(ROWS, to, source="s", config=CONFIG)


@pytest.mark.parametrize(
    ("form", "told"),
    [("sparse", "Parquet has no place for sparse vectors"), ("tokens", "no place for several vectors")],
)
def test_a_store_without_the_form_refuses_it(form: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=told):
        embed_to_store(ROWS, str(tmp_path / "v.parquet"), source="s", config=CONFIG, vectors=form)


@pytest.mark.parametrize("options", [{"dimensions": 4}, {"dtype": "ubinary"}, {"server": "http://h"}])
def test_settings_of_dense_vectors_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="is for dense vectors, not for --vectors sparse"):
        embed_to_store(
            ROWS, str(tmp_path / "v.parquet"), source="s", config=CONFIG, vectors="sparse", **options
        )


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "[" * 100_000], ids=["no", "empty", "cut", "list", "deep"]
)
def test_what_another_program_keeps_beside_vectors_says_nothing_of_them(text: str | None) -> None:
    assert CollectionAbout.from_json(text) is None
