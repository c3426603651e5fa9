"""Embeddings are cut and normalised as asked for.

The reference has `truncate_dim` and `normalize_embeddings` for it.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from support.described_models import PROMPTS, describe_prompted, row_of
from vecmill import Embed, Mill, MillConfig, Purpose, TextOptions, Truncation
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.errors import InvalidRequest
from vecmill.models import locate_model

DIM = 384


class Doubled(FakeEngine):
    """Gives rows of length 2."""

    def run(self, batch, *, width):  # type: ignore[no-untyped-def]
        rows = super().run(batch, width=width)
        return replace(rows, values=rows.values * np.float32(2))


@pytest.mark.parametrize("normalizes", [True, False])
async def test_length_1_is_the_model_s_or_the_request_s_doing(normalizes: bool) -> None:
    whole = describe_model(locate_model())
    description = whole if normalizes else replace(whole, stages=whole.stages[:1])
    engine = FakeEngine(dim=DIM) if normalizes else Doubled(dim=DIM)
    row = row_of("hello", DIM) * (1 if normalizes else 2)
    async with Mill(description, engine=engine) as mill:
        for dimensions, normalize in product([None, 16, DIM], [None, True, False]):
            expected = row[:dimensions]
            if normalizes if normalize is None else normalize:
                expected = expected / np.linalg.norm(expected)
            result = await mill.run(Embed(("hello",), dimensions=dimensions, normalize=normalize))
            np.testing.assert_allclose(result.embeddings, expected[None], rtol=1e-6)


@pytest.mark.parametrize(
    ("reading", "prompt"),
    [
        (TextOptions(), ""),
        (TextOptions(purpose=Purpose.QUERY), PROMPTS["query"]),
        (TextOptions(purpose=Purpose.DOCUMENT), PROMPTS["passage"]),
        (TextOptions(purpose=Purpose.CLUSTERING), PROMPTS["clustering"]),
        (TextOptions(purpose=Purpose.CLASSIFICATION), ""),
        (TextOptions(prompt_name="own"), PROMPTS["own"]),
        (TextOptions(prompt="free: "), "free: "),
    ],
)
async def test_texts_are_read_after_the_prompt_that_is_asked_for(reading: TextOptions, prompt: str) -> None:
    async with Mill(describe_prompted(), MillConfig(engine="fake")) as mill:
        result = await mill.run(Embed(("hello",), options=reading))
    np.testing.assert_array_equal(result.embeddings[0], row_of(f"{prompt}hello", DIM))


async def test_texts_are_cut_at_the_end_and_to_the_length_asked_for() -> None:
    async with Mill(None, MillConfig(engine="fake")) as mill:
        for keeps_end, kept in ((False, "one two three"), (True, "three four five")):
            reading = TextOptions(truncation=Truncation(keeps_end=keeps_end, max_tokens=5))
            result = await mill.run(Embed(("one two three four five",), options=reading))
            np.testing.assert_array_equal(result.embeddings[0], row_of(kept, DIM))
            assert result.token_counts == (5,)


async def test_an_invalid_text_is_named_by_its_place_among_token_ids() -> None:
    async with Mill(None, MillConfig(engine="fake")) as mill:
        with pytest.raises(InvalidRequest, match=r"^`input\[2\]` is not valid Unicode"):
            await mill.run(Embed(((101, 102), "hello", "\ud800")))
