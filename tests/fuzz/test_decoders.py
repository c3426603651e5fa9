"""No bytes make a decoder raise anything but a documented refusal. `make fuzz` looks for minutes, guided."""

import random

import pytest

from fuzz.decoders import DECODERS, Decoder
from fuzz.mutations import mutate

CASES, FULL_CASES = 300, 20_000
# Each of them builds a model or a tokenizer.
SLOW = {"settings": 10, "tokenizer": 10, "batch_input": 2, "upload": 2, "content_type": 3}


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "all_cases", [pytest.param(CASES, id="some"), pytest.param(FULL_CASES, id="all", marks=pytest.mark.full)]
)
def test_decoders_refuse_what_they_cannot_read(name: str, all_cases: int) -> None:
    decoder = DECODERS[name]()
    dice = random.Random(f"{name} {all_cases}")
    for example in decoder.examples:
        decoder.check(example)
    for _ in range(all_cases // SLOW.get(name, 1)):
        data = mutate(dice.choice(decoder.examples), dice)
        try:
            decoder.check(data)
        except BaseException as error:
            raise AssertionError(f"{name} raises {error!r} for {data!r}") from error


@pytest.mark.parametrize("name", DECODERS)
def test_examples_are_examples(name: str) -> None:
    """At least one example of each decoder is read without a refusal, so mutations begin inside it."""
    decoder = DECODERS[name]()
    refusals = []
    for example in decoder.examples:
        try:
            decoder.run(example)
        except Exception as error:
            refusals.append(error)
    assert len(refusals) < len(decoder.examples), refusals


def test_an_exception_that_is_no_refusal_is_found() -> None:
    decoder = Decoder(lambda data: data.index(b"\x00"), (b"a\x00b",))
    dice = random.Random(1)
    mutated = [mutate(decoder.examples[0], dice) for _ in range(100)]
    guilty = next(data for data in mutated if b"\x00" not in data)
    with pytest.raises(ValueError, match="not found"):
        decoder.check(guilty)
