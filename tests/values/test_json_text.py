"""JSON documents are decoded and encoded as `json` does, and other threads run meanwhile."""

import json
import math
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from vecmill.values import json_text
from vecmill.values.json_text import (
    MOST_AT_ONCE,
    decode_first_json,
    decode_json,
    decode_long_json,
    encode_json,
)

SEEDS = range(20)


def random_value(draw: random.Random, depth: int = 4) -> Any:
    leaves = [
        draw.randint(-(10**20), 10**20),
        draw.uniform(-1e9, 1e9),
        draw.choice([math.inf, -math.inf, 0.0, -0.0, 1e30]),
        draw.choice([True, False, None]),
        "".join(chr(draw.choice([9, 34, 65, 92, 233, 0x2028, 0x1F600, 0xD800])) for _ in range(5)),
    ]
    kind = draw.random()
    if depth == 0 or kind < 0.3:
        return draw.choice(leaves)
    size = draw.randint(0, 6)
    if kind < 0.6:
        return [random_value(draw, depth - 1) for _ in range(size)]
    return {f"{draw.random()}\u00e9": random_value(draw, depth - 1) for _ in range(size)}


@pytest.mark.parametrize("seed", SEEDS)
def test_documents_are_those_of_the_standard_library(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value = random_value(random.Random(seed))
    for separators in ((", ", ": "), (",", ":")):
        expected = json.dumps(value, sort_keys=True, separators=separators)
        assert encode_json(value, separators) == expected
    monkeypatch.setattr(json_text, "MOST_AT_ONCE", 0)
    text = json.dumps(value, indent=1)
    assert decode_long_json(text) == decode_first_json(f"{text} x") == decode_json(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", "{", '{"a":}', "[1,]", '{"a" 1}', '"\t"', "[1] 2", "nul", "{1: 2}"])
def test_refusals_are_those_of_the_standard_library(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(text)
    monkeypatch.setattr(json_text, "MOST_AT_ONCE", -1)
    for decode in (decode_json, decode_long_json):
        with pytest.raises(json.JSONDecodeError) as found:
            decode(text)
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("decode", [decode_json, decode_long_json, decode_first_json])
@pytest.mark.parametrize("text", ["[" * 10**5, '{"a":' * 10**5, "[" * 10**5 + "]" * 10**5])
def test_lists_in_lists_hundreds_deep_are_refused_like_any_other_fault(
    decode: Callable[[str], Any], text: str
) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(text)


@pytest.mark.promise("loop-responsive")
@pytest.mark.parametrize("work", ["decode", "encode"])
def test_other_threads_run_while_a_long_document_is_read(work: str) -> None:
    value = {f"key {number}": number for number in range(100_000)}
    text = json.dumps(value)
    assert len(text) > MOST_AT_ONCE
    turns, is_done = 0, threading.Event()

    def take_turns() -> None:
        nonlocal turns
        while not is_done.is_set():
            turns += 1
            time.sleep(0)

    other = threading.Thread(target=take_turns)
    other.start()
    try:
        before = turns
        assert decode_long_json(text) == value if work == "decode" else encode_json(value)
        # In C, the other thread would have had one turn before the call and one after it.
        assert turns - before > 5
    finally:
        is_done.set()
        other.join()
