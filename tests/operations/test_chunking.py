"""Texts in chunks: what is asked for, what is refused, and what is counted. `parity` has the numbers."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.described_models import describe_tasks, token_ids
from support.task_models import save_dense_router, save_task_model
from vecmill import Embed, Mill, MillConfig, TextOptions, Truncation
from vecmill.config import InputConfig, OnLongInput
from vecmill.engines.fake import hash_row, hash_token_rows
from vecmill.errors import InputTooLong, RequestError, RequestTooLarge, UnsupportedTask
from vecmill.models import ModelDescription, Task
from vecmill.models.heads import MultiVector
from vecmill.models.stages import Normalize, Pooling, PoolingMode
from vecmill.requests import Chunking, ChunkingMode, Purpose, TextOrIds
from vecmill.results import Chunk, EmbedResult
from vecmill.values.embeddings import OutputDtype

DIM = 8
FAKE = MillConfig(engine="fake")
TEXT = "one two three four five six seven"
IDS = token_ids(TEXT)


def describe(*modes: PoolingMode, **settings: Any) -> ModelDescription:
    """A model that pools by the mean, or by `modes`."""
    stages = (Pooling(modes or (PoolingMode.MEAN,)), Normalize())
    return replace(describe_tasks()[Task.EMBED], stages=stages, **settings)


@pytest.fixture
async def mill() -> AsyncIterator[Mill]:
    async with Mill(describe(), FAKE) as mill:
        yield mill


async def embed(
    mill: Mill,
    mode: str,
    *texts: TextOrIds,
    tokens: int | None = None,
    overlap: int = 0,
    sentences: bool = False,
    **settings: Any,
) -> EmbedResult:
    chunking = Chunking(ChunkingMode(mode), tokens, overlap, sentences)
    return await mill.run(Embed(texts, chunking=chunking, **settings))


def framed(*places: slice) -> list[Any]:
    """Parts of the tokens of `TEXT` between the special tokens."""
    inside = IDS[1:-1]
    return [np.concatenate([IDS[:1], inside[place], IDS[-1:]]) for place in places]


@pytest.mark.parametrize("mode", ["chunks", "late"])
async def test_chunks_end_at_sentences_where_they_can(mill: Mill, mode: str) -> None:
    text = "One two. Three four five. Six seven"
    found = await embed(mill, mode, text, tokens=5, sentences=True)
    assert found.chunks is not None
    assert [text[one.start : one.end] for one in found.chunks] == [
        "One two. ",
        "Three four five. ",
        "Six seven",
    ]
    plain = await embed(mill, mode, text, tokens=5)
    assert len(plain.embeddings) == 2
    same = await embed(mill, mode, TEXT, tokens=3, sentences=True)
    np.testing.assert_array_equal(same.embeddings, (await embed(mill, mode, TEXT, tokens=3)).embeddings)


async def test_chunks_that_end_at_sentences_are_counted_before_they_are_computed() -> None:
    config = MillConfig(engine="fake", inputs=InputConfig(max_inputs=2))
    async with Mill(describe(), config) as mill:
        with pytest.raises(RequestTooLarge, match="has 3 chunks"):
            await embed(mill, "chunks", "One two. Three four five. Six seven", tokens=5, sentences=True)


async def test_each_chunk_is_a_text_of_its_own_with_its_place(mill: Mill) -> None:
    found = await embed(mill, "chunks", TEXT, "hi", tokens=3, overlap=1)
    assert found.chunks == (
        Chunk(0, 0, 0, 14, 3),
        Chunk(0, 1, 8, 24, 3),
        Chunk(0, 2, 19, 33, 3),
        Chunk(1, 0, 0, 2, 1),
    )
    assert [TEXT[one.start : one.end] for one in found.chunks[:3]] == [
        "one two three ",
        "three four five ",
        "five six seven",
    ]
    rows = [hash_row(ids, DIM) for ids in (*framed(slice(0, 3), slice(2, 5), slice(4, 7)), token_ids("hi"))]
    np.testing.assert_allclose(found.embeddings, rows, atol=1e-6)
    assert found.token_counts == (3 * 5, 3)  # of all chunks, special tokens included
    assert found.truncated_count == 0


async def test_a_text_that_the_model_reads_at_once_is_one_chunk(mill: Mill) -> None:
    for mode in ("pooled", "chunks"):
        found = await embed(mill, mode, TEXT, "")
        usual = await mill.run(Embed((TEXT, "")))
        np.testing.assert_array_equal(found.embeddings, usual.embeddings)
        assert found.token_counts == usual.token_counts


async def test_a_longer_text_is_cut_where_the_model_ends() -> None:
    async with Mill(describe(max_tokens=5), FAKE) as mill:
        found = await embed(mill, "chunks", TEXT)
        assert found.chunks is not None
        assert [one.token_count for one in found.chunks] == [3, 3, 1]
        prompted = await embed(mill, "chunks", TEXT, options=TextOptions(prompt="query "))
        assert prompted.chunks is not None
        assert [one.token_count for one in prompted.chunks] == [2, 2, 2, 1]


async def test_the_pooled_embedding_is_weighted_by_tokens(mill: Mill) -> None:
    pooled = await embed(mill, "pooled", TEXT, "hi", tokens=3)
    chunks = (await embed(mill, "chunks", TEXT, "hi", tokens=3)).embeddings
    mean = (3 * chunks[0] + 3 * chunks[1] + chunks[2]) / 7
    np.testing.assert_allclose(pooled.embeddings, [mean / np.linalg.norm(mean), chunks[3]], atol=1e-6)
    assert pooled.chunks is None
    assert pooled.token_counts == (5 + 5 + 3, 3)
    raw = await embed(mill, "pooled", TEXT, tokens=3, normalize=False, dimensions=4)
    np.testing.assert_allclose(raw.embeddings[0], mean[:4], atol=1e-6)


async def test_late_chunks_share_one_reading(mill: Mill) -> None:
    found = await embed(mill, "late", TEXT, tokens=3, overlap=1)
    states = hash_token_rows(IDS, DIM)
    means = [states[0:4].mean(0), states[3:6].mean(0), states[5:9].mean(0)]
    np.testing.assert_allclose(found.embeddings, [mean / np.linalg.norm(mean) for mean in means], atol=1e-6)
    assert found.token_counts == (9,)  # read once
    assert found.chunks == (await embed(mill, "chunks", TEXT, tokens=3, overlap=1)).chunks


async def test_of_tokens_that_two_windows_share_the_earlier_window_counts() -> None:
    async with Mill(describe(max_tokens=6), FAKE) as mill:
        found = await embed(mill, "late", TEXT, tokens=5)
    first, second = (hash_token_rows(ids, DIM) for ids in framed(slice(0, 4), slice(3, 7)))
    means = [
        np.stack([*first[0:5], second[2]]).mean(0),
        second[3:6].mean(0),
    ]
    np.testing.assert_allclose(found.embeddings, [mean / np.linalg.norm(mean) for mean in means], atol=1e-6)
    assert found.token_counts == (6 + 6,)


async def test_multi_vector_models_average_the_tokens_that_they_keep() -> None:
    skipping = replace(describe_tasks()[Task.MULTI_VECTOR], multi_vector=MultiVector(skipped=("two", "six")))
    async with Mill(skipping, FAKE) as mill:
        found = await embed(mill, "late", TEXT, tokens=5)
    states = hash_token_rows(IDS, 4)[1:-1]
    np.testing.assert_allclose(found.embeddings, [states[[0, 2, 3, 4]].mean(0), states[6]], atol=1e-6)


@pytest.mark.parametrize("mode", [mode for mode in PoolingMode if mode is not PoolingMode.MEAN])
@pytest.mark.parametrize("asked", [{"chunking": Chunking(ChunkingMode.LATE)}, {"late_chunking": True}])
async def test_a_model_without_a_mean_says_so(mode: PoolingMode, asked: dict[str, Any]) -> None:
    async with Mill(describe(mode), FAKE) as mill:
        with pytest.raises(UnsupportedTask, match=f"pools by {mode}") as refusal:
            await mill.run(Embed((TEXT,), **asked))
        assert refusal.value.field == ("late_chunking" if "late_chunking" in asked else "chunking.mode")
        assert len((await embed(mill, "chunks", TEXT, tokens=3)).embeddings) == 3


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("chunking.tokens", {"tokens": 0}),
        ("chunking.tokens", {"tokens": 255}),
        ("chunking.overlap", {"tokens": 3, "overlap": 3}),
        ("chunking.overlap", {"tokens": 3, "overlap": -1}),
        ("chunking.overlap", {"overlap": 254}),
        ("chunking", {"late_chunking": True}),
        ("truncate_prompt_tokens", {"options": TextOptions(truncation=Truncation(max_tokens=5))}),
        ("prompt", {"options": TextOptions(prompt="word " * 254)}),
        ("dimensions", {"dimensions": 9}),
    ],
)
async def test_what_cannot_be_is_refused_by_its_name(mill: Mill, field: str, asked: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refusal:
        await embed(mill, "chunks", TEXT, **asked)
    assert refusal.value.field == field


@pytest.mark.parametrize("mode", ChunkingMode)
async def test_a_text_in_chunks_is_never_too_long(mode: ChunkingMode) -> None:
    refusing = MillConfig(engine="fake", inputs=InputConfig(on_long_input=OnLongInput.ERROR))
    async with Mill(describe(max_tokens=5), refusing) as mill:
        with pytest.raises(InputTooLong):
            await mill.run(Embed((TEXT,)))
        refused = TextOptions(truncation=Truncation(is_allowed=False))
        for options in (TextOptions(), refused):
            found = await embed(mill, mode, TEXT, tokens=3, options=options)
            assert len(found.embeddings) == (1 if mode is ChunkingMode.POOLED else 3)
            assert found.truncated == ()


async def test_token_ids_have_no_places(mill: Mill) -> None:
    for mode in ChunkingMode:
        with pytest.raises(RequestError, match="finds no places in token ids"):
            await embed(mill, mode, TEXT, (1, 2))


@pytest.mark.parametrize("mode", ChunkingMode)
async def test_the_limits_of_a_request_hold_for_its_chunks(mode: ChunkingMode) -> None:
    limits = InputConfig(max_inputs=20, max_request_tokens=100)
    async with Mill(describe(max_tokens=20), MillConfig(engine="fake", inputs=limits)) as mill:
        with pytest.raises(RequestTooLarge, match="chunks in all; at most 20") as refusal:
            await embed(mill, mode, TEXT, TEXT, TEXT, tokens=1)
        assert refusal.value.field == "input"
        with pytest.raises(RequestTooLarge, match="tokens in all"):
            await embed(mill, mode, TEXT * 20)
        if mode is not ChunkingMode.LATE:
            # Tokens that chunks share are computed for each.
            with pytest.raises(RequestTooLarge, match="has 128 tokens in all"):
                await embed(mill, mode, f"{TEXT} {TEXT} {TEXT}", tokens=6, overlap=5)
        assert len((await embed(mill, mode, TEXT, TEXT, tokens=3)).embeddings)
        most = await embed(mill, mode, "a " * 20, tokens=1)
        assert len(most.embeddings) == (1 if mode is ChunkingMode.POOLED else 20)


async def test_large_late_chunks_that_share_nearly_all_are_refused(mill: Mill) -> None:
    with pytest.raises(RequestTooLarge, match="tokens in all"):
        await embed(mill, "late", "a " * 20_000, tokens=19_000, overlap=18_999)


async def test_an_enormous_text_is_refused_before_it_is_cut(mill: Mill) -> None:
    with pytest.raises(RequestTooLarge, match="chunks in all"):
        await embed(mill, "chunks", "a " * 400_000, tokens=200, overlap=199)


async def test_other_models_say_that_they_cannot() -> None:
    async with Mill(describe_tasks()[Task.MULTI_VECTOR], FAKE) as mill:
        with pytest.raises(UnsupportedTask) as refusal:
            await embed(mill, "pooled", TEXT)
        assert refusal.value.field == "model"


async def test_many_at_once_have_their_own_chunks(mill: Mill) -> None:
    import asyncio

    texts = [f"{TEXT} number {number}" for number in range(40)]
    modes = list(ChunkingMode) * 14
    together = await asyncio.gather(
        *(embed(mill, mode, text, tokens=4) for mode, text in zip(modes, texts, strict=False))
    )
    for mode, text, found in zip(modes, texts, together, strict=False):
        alone = await embed(mill, mode, text, tokens=4)
        np.testing.assert_array_equal(found.embeddings, alone.embeddings)


async def test_chunks_may_have_any_type(mill: Mill) -> None:
    found = await embed(mill, "chunks", TEXT, tokens=3, dtypes=(OutputDtype.UBINARY,))
    assert found.ranges is None
    assert len(found.embeddings) == 3


async def test_each_side_of_an_asymmetric_model_has_its_own_chunks(tmp_path: Path) -> None:
    save_dense_router(tmp_path / "m", save_task_model(tmp_path / "bert", "BertModel"))
    async with Mill(tmp_path / "m", MillConfig(cache_dir=tmp_path / "cache")) as mill:
        for purpose in (Purpose.QUERY, Purpose.DOCUMENT):
            options = TextOptions(purpose=purpose)
            usual = await mill.run(Embed(("the one", "of it"), options=options))
            for mode in ("pooled", "chunks") if purpose is Purpose.QUERY else ChunkingMode:
                found = await embed(mill, mode, "the one", "of it", options=options)
                np.testing.assert_allclose(found.embeddings, usual.embeddings, atol=1e-6)
                assert len((await embed(mill, mode, "the one of it", tokens=1, options=options)).embeddings)
        with pytest.raises(UnsupportedTask) as refusal:
            await embed(mill, "late", "the one", options=TextOptions(purpose=Purpose.QUERY))
        assert refusal.value.field == "chunking.mode"
