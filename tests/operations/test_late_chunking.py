"""Late chunking reads chunks together, and the row of each is the mean of its tokens' rows."""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from support.described_models import describe_tasks, token_ids
from vecmill import Embed, Mill, MillConfig, TextOptions, Truncation
from vecmill.engines.fake import hash_token_rows
from vecmill.errors import InputTooLong, InvalidRequest, RequestError, UnsupportedTask
from vecmill.models import ModelDescription, Task
from vecmill.models.heads import MultiVector
from vecmill.models.stages import Normalize
from vecmill.requests import TextOrIds
from vecmill.results import EmbedResult
from vecmill.values.aliases import FloatArray

DIM = 4
FAKE = MillConfig(engine="fake")
CHUNKS = ("hello world", "a cat sleeps", "dogs bark")


@pytest.fixture
def description() -> ModelDescription:
    return replace(describe_tasks()[Task.MULTI_VECTOR], prompts={"document": "passage: "})


@pytest.fixture
async def mill(description: ModelDescription) -> AsyncIterator[Mill]:
    async with Mill(description, FAKE) as mill:
        yield mill


async def embed(mill: Mill, *chunks: TextOrIds, **settings: Any) -> EmbedResult:
    return await mill.run(Embed(chunks, late_chunking=True, **settings))


def means(*counts: int, prompt: int = 2) -> FloatArray:
    """The means over so many tokens each, after those of the prompt and the one special token before it."""
    rows = hash_token_rows(token_ids("passage: " + " ".join(CHUNKS)), DIM)
    bounds = np.cumsum([1 + prompt, *counts])
    return np.stack([rows[start:end].mean(axis=0) for start, end in pairwise(bounds.tolist())])


async def test_each_chunk_is_the_mean_of_its_tokens_in_the_whole_text(mill: Mill) -> None:
    result = await embed(mill, *CHUNKS)
    np.testing.assert_allclose(result.embeddings, means(2, 3, 2), atol=1e-6)
    assert result.token_count == len(token_ids("passage: " + " ".join(CHUNKS)))
    assert result.token_counts == (2 + 2 + 2, 3, 2)  # the first has the prompt's and the special ones
    assert result.embeddings.flags.c_contiguous


async def test_the_other_chunks_matter(mill: Mill) -> None:
    together, alone = await embed(mill, *CHUNKS), await embed(mill, CHUNKS[1])
    assert not np.allclose(together.embeddings[1], alone.embeddings[0], atol=1e-3)


async def test_rows_are_cut_and_normalised_as_others_are(description: ModelDescription) -> None:
    expected = means(2, 3, 2)
    async with Mill(replace(description, stages=(Normalize(),)), FAKE) as mill:
        unit = (await embed(mill, *CHUNKS)).embeddings
        np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1)[:, None], atol=1e-6)
        np.testing.assert_allclose(
            (await embed(mill, *CHUNKS, normalize=False)).embeddings, expected, atol=1e-6
        )
        short = (await embed(mill, *CHUNKS, dimensions=2)).embeddings
        np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, rtol=1e-5)
        assert short.shape == (3, 2)
        with pytest.raises(InvalidRequest, match="1 to 4"):
            await embed(mill, *CHUNKS, dimensions=5)


async def test_tokens_that_the_model_skips_count_only_where_there_are_no_others(
    description: ModelDescription,
) -> None:
    skipping = replace(description, prompts={}, multi_vector=MultiVector(skipped=("!", ".")))
    async with Mill(skipping, FAKE) as mill:
        result = await embed(mill, "hello !", "! .")
    rows = hash_token_rows(token_ids("hello ! ! ."), DIM)
    np.testing.assert_allclose(result.embeddings, [rows[1], rows[3:5].mean(axis=0)], atol=1e-6)


async def test_chunks_that_the_model_cannot_read_together_are_refused(mill: Mill) -> None:
    long = ("hello " * 100,) * 3
    for truncation in (Truncation(), Truncation(is_allowed=False)):
        with pytest.raises(InputTooLong, match="has 304 tokens; at most 256"):
            await embed(mill, *long, options=TextOptions(truncation=truncation))


@pytest.mark.parametrize(
    ("chunks", "field"),
    [(("hello", ""), "input[1]"), ((" ", "hello"), "input[0]"), (("hello", (1, 2)), "input"), ((), "input")],
)
async def test_what_has_no_tokens_of_its_own_is_refused(
    mill: Mill, chunks: tuple[TextOrIds, ...], field: str
) -> None:
    with pytest.raises(RequestError) as refusal:
        await embed(mill, *chunks)
    assert refusal.value.field == field


@pytest.mark.parametrize("task", [task for task in Task if task is not Task.MULTI_VECTOR])
async def test_other_models_say_that_they_cannot(task: Task) -> None:
    async with Mill(describe_tasks()[task], FAKE) as mill:
        with pytest.raises(
            UnsupportedTask, match="needs a model that gives an embedding for each token"
        ) as refusal:
            await embed(mill, *CHUNKS)
        assert refusal.value.field == "late_chunking"
