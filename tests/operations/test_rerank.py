"""One query for all documents or one for each; each document read as far as is asked for."""

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from support.described_models import PROMPTS, describe_prompted, describe_tasks, row_of, token_ids
from vecmill import Mill, MillConfig, TextOptions, Truncation
from vecmill.engines.fake import hash_row
from vecmill.errors import InputTooLong, InvalidRequest, UnknownPrompt
from vecmill.models import Task
from vecmill.vectors import sigmoid

FAKE = MillConfig(engine="fake")
QUERIES, DOCUMENTS = ["hello", "world", "hello world"], ["a cat", "a dog", "hello"]


@pytest.fixture(params=[Task.RERANK, Task.EMBED, Task.MULTI_VECTOR, Task.SPARSE])
async def mill(request: pytest.FixtureRequest) -> AsyncIterator[Mill]:
    async with Mill(describe_tasks()[request.param], FAKE) as mill:
        yield mill


@pytest.fixture
async def cross_encoder() -> AsyncIterator[Mill]:
    async with Mill(describe_tasks()[Task.RERANK], FAKE) as mill:
        yield mill


async def test_queries_of_their_own_score_as_one_by_one(mill: Mill) -> None:
    together = await mill.rerank(QUERIES, DOCUMENTS)
    alone = [await mill.rerank(one, [other]) for one, other in zip(QUERIES, DOCUMENTS, strict=True)]
    np.testing.assert_allclose(together.scores, [result.scores[0] for result in alone], rtol=1e-6)
    assert together.token_count == sum(result.token_count for result in alone)


async def test_one_query_is_for_every_document(mill: Mill) -> None:
    one = await mill.rerank("hello", DOCUMENTS)
    same = await mill.rerank(["hello"] * 3, DOCUMENTS)
    np.testing.assert_allclose(one.scores, same.scores, rtol=1e-6)
    np.testing.assert_array_equal(one.scores, (await mill.rerank(["hello"], DOCUMENTS)).scores)


@pytest.mark.parametrize(("queries", "documents"), [(2, 3), (3, 1), (0, 1)])
async def test_numbers_that_do_not_match_are_refused(mill: Mill, queries: int, documents: int) -> None:
    with pytest.raises(InvalidRequest, match=f"{queries} queries for {documents} documents"):
        await mill.rerank(["q"] * queries, ["d"] * documents)


async def test_the_query_is_read_after_the_prompt_that_is_asked_for() -> None:
    description = describe_prompted()
    async with Mill(description, FAKE) as mill:
        document = row_of(PROMPTS["passage"] + "world", description.dim)
        for reading, prompt in (
            (TextOptions(), PROMPTS["query"]),
            (TextOptions(prompt_name="own"), PROMPTS["own"]),
            (TextOptions(prompt="free: "), "free: "),
        ):
            scores = (await mill.rerank("hello", ["world"], options=reading)).scores
            expected = row_of(f"{prompt}hello", description.dim) @ document
            assert scores[0] == pytest.approx(expected, abs=1e-6)
        with pytest.raises(UnknownPrompt):
            await mill.rerank("hello", ["world"], options=TextOptions(prompt_name="nobody"))


async def test_documents_are_read_as_far_as_is_asked_for(mill: Mill) -> None:
    reading = TextOptions(document_tokens=2)
    cut = await mill.rerank("hello", ["a dog is here", "hello", ""], options=reading)
    plain = await mill.rerank("hello", ["a dog", "hello", ""])
    np.testing.assert_array_equal(cut.scores, plain.scores)
    assert cut.token_count == plain.token_count


async def test_queries_are_read_as_far_as_is_asked_for(mill: Mill, cross_encoder: Mill) -> None:
    for one in (mill, cross_encoder):
        cut = await one.rerank("a dog is here", ["world", ""], options=TextOptions(query_tokens=2))
        plain = await one.rerank("a dog", ["world", ""])
        np.testing.assert_array_equal(cut.scores, plain.scores)
        assert cut.token_count == plain.token_count


async def test_a_long_pair_is_cut_at_the_end_that_is_asked_for(cross_encoder: Mill) -> None:
    document = "hello " * 300 + "world"
    start, query, end = token_ids("hello")
    body = token_ids("hello " * 300)[1:301].tolist()
    room = 256 - 4
    for keeps_end, kept in ((None, body[:room]), (False, body[:room]), (True, [*body[: room - 1], 2088])):
        reading = TextOptions(truncation=Truncation(keeps_end=keeps_end))
        result = await cross_encoder.rerank("hello", [document], raw_scores=True, options=reading)
        expected = hash_row(np.array([start, query, end, *kept, end]), 1)
        np.testing.assert_array_equal(result.scores, expected)
        assert result.token_count == 256
    with pytest.raises(InputTooLong, match=r"`documents\[0\]` has 305 tokens; at most 256"):
        await cross_encoder.rerank(
            "hello", [document], options=TextOptions(truncation=Truncation(is_allowed=False))
        )


async def test_scores_are_the_model_s_own_unless_they_are_to_be_raw(cross_encoder: Mill) -> None:
    raw = (await cross_encoder.rerank("hello", DOCUMENTS, raw_scores=True)).scores
    np.testing.assert_allclose((await cross_encoder.rerank("hello", DOCUMENTS)).scores, sigmoid(raw))


async def test_an_instruction_needs_a_model_that_heeds_it(cross_encoder: Mill) -> None:
    with pytest.raises(InvalidRequest, match="takes no instruction") as refusal:
        await cross_encoder.rerank("hello", ["a"], instruction="find greetings")
    assert refusal.value.field == "instruction"
    with pytest.raises(InvalidRequest, match="not both"):
        await cross_encoder.rerank(
            "hello", ["a"], instruction="find greetings", options=replace(TextOptions(), prompt_name="query")
        )
