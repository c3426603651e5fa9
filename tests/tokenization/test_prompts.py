"""What goes before a text: own words, a prompt by its name, that of a purpose, or the model's default."""

import re

import pytest

from vecmill.errors import InvalidRequest, UnknownPrompt
from vecmill.requests import Purpose, TextOptions, Truncation
from vecmill.tokenization.prompts import NO_PROMPT, PROMPT_NAMES, Prompt, find_prompt

PROMPTS = {"query": "query: ", "passage": "passage: ", "Clustering": "cluster: ", "mine": "mine: "}
DEFAULT = Prompt("mine: ")


@pytest.mark.parametrize(
    ("reading", "prompt"),
    [
        (TextOptions(), DEFAULT.text),
        (TextOptions(prompt="in my words: "), "in my words: "),
        (TextOptions(prompt=""), ""),
        (TextOptions(prompt_name="passage"), "passage: "),
        (TextOptions(prompt_name="passage", purpose=Purpose.QUERY), "passage: "),
        (TextOptions(prompt="own: ", purpose=Purpose.QUERY), "own: "),
        (TextOptions(purpose=Purpose.QUERY), "query: "),
        (TextOptions(purpose=Purpose.DOCUMENT), "passage: "),
        (TextOptions(purpose=Purpose.CLUSTERING), "cluster: "),
        (TextOptions(purpose=Purpose.CLASSIFICATION), DEFAULT.text),
        (TextOptions(purpose=Purpose.SIMILARITY), DEFAULT.text),
    ],
)
def test_the_prompt_is_the_one_that_is_asked_for(reading: TextOptions, prompt: str) -> None:
    assert find_prompt(PROMPTS, DEFAULT, reading) == Prompt(prompt)


@pytest.mark.parametrize("purpose", Purpose)
def test_a_purpose_finds_every_name_that_models_give_its_prompt(purpose: Purpose) -> None:
    for name in PROMPT_NAMES[purpose]:
        assert find_prompt({name: "found: "}, NO_PROMPT, TextOptions(purpose=purpose)) == Prompt("found: ")


@pytest.mark.parametrize("purpose", Purpose)
def test_the_reference_s_name_comes_before_the_others(purpose: Purpose) -> None:
    prompts = {name: f"{name}: " for name in reversed(PROMPT_NAMES[purpose])}
    first = PROMPT_NAMES[purpose][0]
    assert find_prompt(prompts, NO_PROMPT, TextOptions(purpose=purpose)) == Prompt(f"{first}: ")


@pytest.mark.parametrize("name", ["query", "document"])
def test_queries_and_documents_have_an_empty_prompt_where_a_model_has_none(name: str) -> None:
    """As in the reference, also where the model's default prompt is another."""
    prompts = {"mine": DEFAULT.text}
    assert find_prompt(prompts, DEFAULT, TextOptions(prompt_name=name)) == NO_PROMPT
    assert find_prompt(prompts, DEFAULT, TextOptions(purpose=Purpose(name))) == NO_PROMPT


def test_an_unknown_name_is_told_which_there_are() -> None:
    with pytest.raises(UnknownPrompt, match="It has: Clustering, mine, passage, query") as refusal:
        find_prompt(PROMPTS, DEFAULT, TextOptions(prompt_name="x" * 1_000))
    assert refusal.value.field == "prompt_name"
    assert len(refusal.value.message) < 200
    with pytest.raises(UnknownPrompt, match="It has: none"):
        find_prompt({}, NO_PROMPT, TextOptions(prompt_name="passage"))


def test_two_prompts_are_one_too_many() -> None:
    with pytest.raises(InvalidRequest, match="not both") as refusal:
        find_prompt(PROMPTS, DEFAULT, TextOptions(prompt_name="query", prompt="own: "))
    assert refusal.value.field == "prompt"


ADAPTERS = ("retrieval.query", "separation")
OF_ADAPTERS = {"retrieval.query": "find: ", "separation": "", "mine": "mine: "}


@pytest.mark.parametrize(
    ("reading", "prompt", "adapter"),
    [
        (TextOptions(), DEFAULT.text, 0),
        (TextOptions(prompt_name="retrieval.query"), "find: ", 1),
        (TextOptions(prompt_name="separation"), "", 2),
        (TextOptions(prompt_name="mine"), "mine: ", 0),
        (TextOptions(prompt_name="separation", purpose=Purpose.QUERY), "", 2),
        (TextOptions(purpose=Purpose.QUERY), "find: ", 1),
        (TextOptions(purpose=Purpose.CLUSTERING), "", 2),
        (TextOptions(prompt="own: "), "own: ", 0),
        (TextOptions(prompt="own: ", purpose=Purpose.CLUSTERING), "own: ", 2),
    ],
)
def test_the_prompt_chooses_the_adapter(reading: TextOptions, prompt: str, adapter: int) -> None:
    assert find_prompt(OF_ADAPTERS, DEFAULT, reading, ADAPTERS) == Prompt(prompt, adapter)


def test_the_default_prompt_keeps_its_adapter() -> None:
    default = Prompt("find: ", 1)
    assert find_prompt(OF_ADAPTERS, default, TextOptions(), ADAPTERS) == default


def test_without_adapters_a_prompt_has_none() -> None:
    for name in OF_ADAPTERS:
        assert find_prompt(OF_ADAPTERS, DEFAULT, TextOptions(prompt_name=name)).adapter == 0


@pytest.mark.parametrize("purpose", [Purpose.DOCUMENT, Purpose.CLASSIFICATION])
def test_a_purpose_without_an_adapter_is_refused(purpose: Purpose) -> None:
    wanted = f"no adapter for the purpose {purpose.value}. It has: retrieval.query, separation"
    with pytest.raises(UnknownPrompt, match=re.escape(wanted)):
        find_prompt(OF_ADAPTERS, DEFAULT, TextOptions(purpose=purpose), ADAPTERS)


@pytest.mark.parametrize(
    ("asked", "own", "limit"), [(None, None, None), (5, None, 5), (None, 7, 7), (5, 7, 5), (9, 7, 7)]
)
def test_the_lower_of_two_limits_holds(asked: int | None, own: int | None, limit: int | None) -> None:
    truncation = Truncation(is_allowed=False, keeps_end=True, max_tokens=asked).within(own)
    assert truncation == Truncation(is_allowed=False, keeps_end=True, max_tokens=limit)
