"""No bytes make a decoder raise anything but a documented refusal. `make fuzz` looks for minutes, guided."""

import random

import pytest

from fuzz.connection import feed_connection
from fuzz.decoders import DECODERS, PATHS, REQUEST, Decoder
from fuzz.guided import Run, count_inputs
from fuzz.mutations import mutate
from support.memory_transport import MemoryTransport

CASES, FULL_CASES = 120, 20_000
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


def test_each_route_begins_with_a_body_that_it_reads() -> None:
    begun = {PATHS[example[0]].paths for example in DECODERS["body"]().examples}
    assert [route.paths for route in PATHS if route.paths not in begun] == []


def test_a_connection_that_does_not_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, unfinished = b"\x00" + REQUEST, b"\x00" + REQUEST[:-1]
    monkeypatch.setattr(MemoryTransport, "write", lambda self, data: None)
    feed_connection(unfinished)
    with pytest.raises(AssertionError, match="without a response"):
        feed_connection(whole)


def test_a_guided_run_without_inputs_is_not_sound() -> None:
    assert count_inputs("INFO: seed\nstat::number_of_executed_units: 4711\n") == 4711
    assert not Run(True, count_inputs("nothing was imported"), "").is_sound
    assert not Run(False, 9, "").is_sound
