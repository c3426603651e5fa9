"""The prompt that an answer names is the prompt that went before its texts."""

from dataclasses import replace

import pytest

from support.described_models import describe_prompted, describe_tasks
from vecmill import Mill, MillConfig
from vecmill.models import Task
from vecmill.operations.answer_spaces import AnswerSpaces
from vecmill.requests import Chunking, ChunkingMode, Embed, EmbedTokens, Purpose, Rerank, TextOptions

pytestmark = pytest.mark.promise("space-identifies")

PROMPTED = replace(
    describe_prompted({"query": "ask: ", "document": "", "own": "own: "}), default_prompt_name="own"
)
FAKE = MillConfig(engine="fake")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (TextOptions(), "own"),
        (TextOptions(purpose=Purpose.QUERY), "query"),
        (TextOptions(purpose=Purpose.DOCUMENT), None),
        (TextOptions(purpose=Purpose.CLUSTERING), "own"),
        (TextOptions(prompt=""), None),
        (TextOptions(prompt="mine: "), None),
        (TextOptions(prompt_name="query"), "query"),
    ],
    ids=str,
)
async def test_the_prompt_that_was_applied_is_named(options: TextOptions, name: str | None) -> None:
    async with Mill(PROMPTED, FAKE) as mill:
        found = mill.find_space(Embed(("a",), options=options))
        assert found is not None
        assert (found.prompt_name, found.space, found.exact) == (name, mill.space, mill.exact)


async def test_token_ids_have_no_prompt() -> None:
    async with Mill(PROMPTED, FAKE) as mill:
        of_ids, of_both = (mill.find_space(Embed(inputs)) for inputs in (((7, 8),), ((7, 8), "a")))
    assert of_ids is not None
    assert of_both is not None
    assert (of_ids.prompt_name, of_both.prompt_name) == (None, "own")


async def test_texts_of_a_multi_vector_model_are_documents_unless_they_are_queries() -> None:
    model = replace(describe_tasks()[Task.MULTI_VECTOR], prompts={"document": "[D]", "query": "[Q]"})
    async with Mill(model, FAKE) as mill:
        for purpose, name in ((None, "document"), (Purpose.QUERY, "query")):
            found = mill.find_space(EmbedTokens(("a",), options=TextOptions(purpose=purpose)))
            assert found is not None
            assert found.prompt_name == name


async def test_chunks_and_their_means_are_in_the_space_of_the_model_and_late_chunks_are_not() -> None:
    async with Mill(PROMPTED, FAKE) as mill:
        found = {mode: mill.find_space(Embed(("a",), chunking=Chunking(mode))) for mode in ChunkingMode}
        joined = mill.find_space(Embed(("a",), late_chunking=True))
        late = found.pop(ChunkingMode.LATE)
        assert late == joined
        assert late is not None
        assert mill.space != late.space
        assert mill.exact != late.exact
        for each in found.values():
            assert each is not None
            assert (each.space, each.exact, each.prompt_name) == (mill.space, mill.exact, "own")


async def test_an_answer_without_vectors_has_no_space() -> None:
    async with Mill(PROMPTED, FAKE) as mill:
        assert mill.find_space(Rerank(("a",), ("b",))) is None


async def test_only_what_the_model_names_is_kept() -> None:
    async with Mill(PROMPTED, FAKE) as mill:
        spaces = AnswerSpaces(mill.description, mill.identity)
        for number in range(1, 300):
            of_client = (TextOptions(prompt=str(number)), TextOptions(prompt_name=str(number)))
            for request in (*(Embed(("a",), options=each) for each in of_client), Embed(("a",), number)):
                assert spaces.find(request) == mill.find_space(request)
        assert not spaces.kept
        named = [TextOptions(), TextOptions(prompt_name="query"), *map(options_for, Purpose)]
        for _ in range(3):
            for options in named:
                request = Embed(("a",), options=options)
                assert spaces.find(request) == mill.find_space(request)
        assert len(spaces.kept) == len(named)


def options_for(purpose: Purpose) -> TextOptions:
    return TextOptions(purpose=purpose)
