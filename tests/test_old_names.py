"""The public names of version 0.1 still work, with a warning that says the new name."""

import numpy as np
import pytest

import vecmill
from vecmill import (
    Embed,
    EmbedSparseResult,
    Mill,
    MillConfig,
    Priority,
    SparseEmbedding,
    SyncMill,
    TextOptions,
)
from vecmill.requests import Request

FAKE = MillConfig(engine="fake")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Reading", TextOptions),
        ("SparseRow", SparseEmbedding),
        ("SparseResult", EmbedSparseResult),
        ("MultiVectorResult", vecmill.EmbedTokensResult),
    ],
)
def test_classes(old: str, new: type) -> None:
    with pytest.warns(DeprecationWarning, match=f"vecmill.{old} is now vecmill.{new.__name__}"):
        assert getattr(vecmill, old) is new


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Rreading'"):
        vecmill.Rreading  # noqa: B018


def test_the_old_request_becomes_the_new_one() -> None:
    options = TextOptions("query")
    with pytest.warns(DeprecationWarning, match="vecmill.EmbedRequest is now vecmill.Embed"):
        request = vecmill.EmbedRequest(("a",), options, dimensions=8, field="texts", is_bulk=True)
    with pytest.warns(DeprecationWarning, match="vecmill.EmbedRequest is now vecmill.Embed"):
        in_order = vecmill.EmbedRequest(("a",), options, 8, True, 1.5, late_chunking=True)
    assert request == Embed(("a",), 8, options=options, priority=Priority.BACKGROUND)
    assert in_order == Embed(("a",), 8, True, late_chunking=True, options=options, timeout_s=1.5)


async def test_methods_of_a_mill() -> None:
    async with Mill(config=FAKE) as mill:
        new = await mill.run(Embed(("hello",)))
        with pytest.warns(DeprecationWarning, match="submit is now run"):
            old = await mill.submit(Embed(("hello",)))
        with pytest.warns(DeprecationWarning, match="rows is now embeddings"):
            np.testing.assert_array_equal(old.rows, new.embeddings)
        with pytest.warns(DeprecationWarning, match="reading is now options"):
            await mill.rerank("hello", ["world"], reading=TextOptions())  # type: ignore[call-arg]
        with pytest.warns(DeprecationWarning, match="tokenize is now"):
            tokens = (await mill.tokenize(["hello"])).tokens[0]
        with pytest.warns(DeprecationWarning, match="detokenize is now"):
            assert await mill.detokenize([[token.token_id for token in tokens]]) == ("hello",)
        with pytest.warns(DeprecationWarning, match="ranges is now"):
            assert (await mill.ranges(16)).shape == (2, 16)


def test_methods_of_the_synchronous_face(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request[object]] = []

    async def note(_self: Mill, request: Request[object]) -> None:
        asked.append(request)

    with SyncMill(config=FAKE) as mill:
        monkeypatch.setattr(Mill, "run", note)
        for name in ("embed_sparse", "embed_all", "classify_tokens"):
            with pytest.warns(DeprecationWarning, match=f"{name} is now"):
                getattr(mill, name)(["hello"])
    assert [type(request).__name__ for request in asked] == ["EmbedSparse", "EmbedTokens", "ClassifyTokens"]
