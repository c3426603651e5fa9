"""Every result tells how many of its inputs were cut, and the observer hears of them once."""

from typing import Any

import pytest

from support.described_models import describe_prompted, describe_tasks
from vecmill import (
    Classify,
    ClassifyTokens,
    Embed,
    EmbedSparse,
    EmbedTokens,
    Mill,
    MillConfig,
    Request,
    Rerank,
    TextOptions,
    Tokenize,
)
from vecmill.models import ModelDescription, Task
from vecmill.results import Truncated
from vecmill.values.embeddings import OutputDtype
from vecmill.values.observer import Observer

FAKE = MillConfig(engine="fake")
LONG, SHORT, EXACT = "cat " * 300, "cat", "cat " * 254  # the model reads 256 tokens, two of them special
TASKS = describe_tasks()


class Cuts(Observer):
    """Adds up."""

    def __init__(self) -> None:
        self.texts = 0

    def truncated(self, texts: int) -> None:
        self.texts += texts


@pytest.mark.parametrize(
    ("description", "request_", "count"),
    [
        (TASKS[Task.EMBED], Embed((LONG, EXACT, SHORT, LONG, (5,) * 257, (5,) * 256)), 3),
        (TASKS[Task.EMBED], Embed((LONG, SHORT), dtypes=(OutputDtype.INT8,)), 1),
        (describe_prompted(), Embed((EXACT,)), 0),
        (describe_prompted(), Embed((EXACT,), options=TextOptions(prompt_name="own")), 1),
        (TASKS[Task.SPARSE], EmbedSparse((LONG, EXACT)), 1),
        (TASKS[Task.MULTI_VECTOR], EmbedTokens((LONG, EXACT)), 1),
        (TASKS[Task.EMBED], EmbedTokens((LONG, EXACT), hidden_states=True), 1),
        (TASKS[Task.CLASSIFY], Classify((LONG, EXACT, (LONG, SHORT), (SHORT, SHORT))), 2),
        (TASKS[Task.CLASSIFY_TOKENS], ClassifyTokens((LONG, EXACT)), 1),
        # The pairs of a cross-encoder, with three special tokens; of other models each text.
        (TASKS[Task.RERANK], Rerank((SHORT,), (LONG, "cat " * 252, "cat " * 253)), 2),
        (TASKS[Task.RERANK], Rerank((LONG,), (SHORT, SHORT)), 2),
        (TASKS[Task.EMBED], Rerank((LONG,), (SHORT, LONG)), 2),
        (TASKS[Task.MULTI_VECTOR], Rerank((SHORT,), (SHORT, LONG)), 1),
        (TASKS[Task.EMBED], Tokenize((LONG,)), 0),
    ],
)
async def test_inputs_that_were_cut_are_counted(
    description: ModelDescription, request_: Request[Any], count: int
) -> None:
    cuts = Cuts()
    async with Mill(description, FAKE, observer=cuts) as mill:
        assert (await mill.run(request_)).truncated_count == cuts.texts == count


@pytest.mark.parametrize("task", [Task.RERANK, Task.EMBED, Task.MULTI_VECTOR, Task.SPARSE])
async def test_texts_that_a_rerank_cuts_as_it_is_asked_to_are_counted(task: Task) -> None:
    three, four = "a cat sleeps", "a cat sleeps here"
    async with Mill(TASKS[task], FAKE) as mill:

        async def count(query_tokens: int | None = None, document_tokens: int | None = None) -> int:
            options = TextOptions(query_tokens=query_tokens, document_tokens=document_tokens)
            return (await mill.rerank(four, [three, four], options=options)).truncated_count

        assert await count(document_tokens=3) == 1
        assert await count(document_tokens=4, query_tokens=4) == 0
        # A query that was cut is part of each pair of a cross-encoder.
        assert await count(query_tokens=3) == (2 if task is Task.RERANK else 1)
        assert await count(document_tokens=3, query_tokens=3) == 2


@pytest.mark.promise("truncation-told")
@pytest.mark.parametrize("task", [Task.EMBED, Task.MULTI_VECTOR, Task.SPARSE])
async def test_a_query_that_is_computed_alone_comes_after_the_documents(task: Task) -> None:
    async with Mill(TASKS[task], FAKE) as mill:
        found = await mill.run(Rerank((LONG,), (SHORT, LONG)))
        assert found.truncated == (Truncated(1, 46), Truncated(2, 46))
        options = TextOptions(document_tokens=100, query_tokens=290)
        found = await mill.run(Rerank((LONG,), (SHORT, LONG), options=options))
        # The query loses 10 tokens first, and then what the model does not read of the rest.
        assert found.truncated == (Truncated(1, 200), Truncated(2, 46))
