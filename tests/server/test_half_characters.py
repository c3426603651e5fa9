"""Half a surrogate pair in a body is named by its field, and the search for it ends in time."""

import json
import time
import tracemalloc

import pytest

from vecmill_server.base import half_characters
from vecmill_server.base.errors import InvalidJson
from vecmill_server.base.half_characters import MOST_BYTES, find_half_character
from vecmill_server.base.json_io import decode_object

HALF = '"cut \\ud83d"'


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"input": ["fine", %s, "fine"]}', "input[1]"),
        ('{"input": %s}', "input"),
        ('{"documents": ["a", {"text": %s}]}', "documents[1].text"),
        ('{"a": {"b": [[], ["c", %s]]}}', "a.b[1][1]"),
        ('{"input": ["\\ude00", %s]}', "input[0]"),
    ],
)
def test_the_field_is_named(body: str, field: str) -> None:
    with pytest.raises(InvalidJson) as raised:
        decode_object((body % HALF).encode())
    assert raised.value.field == field
    assert raised.value.message.startswith(f"`{field}` has half a character")


@pytest.mark.parametrize(
    "body",
    [
        '{"%s": "\\ud83d"}' % ("a" * 100),  # a name that is not repeated
        '{"a b": "\\ud83d"}',
        '{"\\ud83d": "a"}',
        '{"input": "\\ud83d", nonsense',
        '{"a":' * 300 + HALF + "}" * 300,  # a field whose name would be too long
        "[" * 100_000 + HALF,
    ],
)
def test_a_place_without_a_name_is_told_by_its_position(body: str) -> None:
    with pytest.raises(InvalidJson, match=r"The body is not valid JSON: .* at position \d") as raised:
        decode_object(body.encode())
    assert raised.value.field is None


def test_whole_characters_are_found_nowhere() -> None:
    assert find_half_character(json.dumps({"input": ["😀", "é"]}).encode()) is None


@pytest.mark.parametrize("most_bytes", [MOST_BYTES // 8, pytest.param(MOST_BYTES, marks=pytest.mark.full)])
def test_a_long_body_is_not_read_twice(most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_characters, "MOST_BYTES", most_bytes)
    count = most_bytes // 2 - 100
    numbers = b"0," * count
    assert find_half_character(b'{"input": [' + numbers + numbers + HALF.encode() + b"]}") is None
    body = b'{"input": [' + numbers + HALF.encode() + b"]}"
    began = time.process_time()
    tracemalloc.start()
    assert find_half_character(body) == f"input[{count}]"
    _, held_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 16 * most_bytes  # the values, and no list of their places
    assert time.process_time() - began < 5 * most_bytes / MOST_BYTES
