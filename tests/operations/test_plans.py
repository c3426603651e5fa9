"""How texts are read is planned once for options that the model names, and for no others is it kept."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from support.full_queue import fill_queue
from vecmill import Embed, Mill, MillConfig, TextOptions
from vecmill.directory_layouts import describe_model
from vecmill.errors import QueueFull, UnknownPrompt
from vecmill.models import ModelDescription, locate_model
from vecmill.operations.loaded_model import MOST_PLANS, LoadedModel
from vecmill.requests import Purpose, Truncation
from vecmill.tokenization.tokenizer import Tokenizer

VARIANTS = 2_000


@pytest.fixture(scope="module")
def description() -> ModelDescription:
    plain = describe_model(locate_model())
    names = {f"prompt {number}": f"{number}: " for number in range(MOST_PLANS + 1)}
    return replace(plain, prompts=names, default_prompt_name=None)


@pytest.fixture
async def loaded(description: ModelDescription) -> AsyncIterator[LoadedModel]:
    async with Mill(description, MillConfig(engine="fake")) as mill:
        assert mill._loaded is not None
        yield mill._loaded


async def test_options_that_the_model_names_are_planned_once(loaded: LoadedModel) -> None:
    for options in (TextOptions(), TextOptions(purpose=Purpose.QUERY), TextOptions("prompt 1")):
        assert loaded.plan(options) is loaded.plan(replace(options))
    assert len(loaded.plans) == 3


async def test_own_words_and_numbers_of_clients_drive_out_no_plan(loaded: LoadedModel) -> None:
    usual = loaded.plan(TextOptions())
    for number in range(VARIANTS):
        loaded.plan(TextOptions(prompt=f"own words {number}: "))
        loaded.plan(TextOptions(truncation=Truncation(max_tokens=number + 1)))
        loaded.plan(TextOptions(query_tokens=number + 1))
        loaded.plan(TextOptions(document_tokens=number + 1))
        with pytest.raises(UnknownPrompt):
            loaded.plan(TextOptions(f"unknown {number}"))
    assert loaded.plans == {TextOptions(): usual}


async def test_no_more_plans_are_kept_than_the_bound(loaded: LoadedModel) -> None:
    for name in loaded.description.prompts:
        loaded.plan(TextOptions(name))
    assert len(loaded.plans) == 1  # of the last one: the bound was reached before


@pytest.mark.promise("goodput-kept")
async def test_no_prompt_of_a_client_is_read_while_the_queue_is_full(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fill_queue(description) as full:
        with monkeypatch.context() as patched:
            patched.delattr(Tokenizer, "prompt_length_in_slices")  # whoever reads a prompt now fails
            again = Embed(("again",), options=TextOptions(prompt="my words: "))
            with pytest.raises(QueueFull):
                await full.mill.run(again, wait_for_room=False)
