"""Documents that would be far larger in memory than their text are refused before they are decoded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecmill_server.base import json_measure
from vecmill_server.base.errors import InvalidJson
from vecmill_server.base.json_io import encode_in_pieces, encode_json
from vecmill_server.base.json_measure import DocumentLimits, measure_document, weigh_values

LIMITS = DocumentLimits(max_values=1_000, max_wide_characters=1_000)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=3), inner, max_size=5),
    max_leaves=60,
)


@pytest.mark.parametrize("item", ["[]", "{}", '""', "1", "[[]]", '{"a":1}', "[1,2]", '"a"'])
def test_bombs_are_refused(item: str) -> None:
    with pytest.raises(InvalidJson, match="more than 1000 JSON values"):
        measure_document(("[" + ",".join([item] * 2_000) + "]").encode(), LIMITS)


@pytest.mark.parametrize(
    "text", ["[]," * 2_000, '{"a":1},' * 2_000, '"' * 2_000, "\\" * 2_001, '\\",[' * 999]
)
@pytest.mark.parametrize("piece_bytes", [7, 1024 * 1024])
def test_text_that_looks_like_values_is_only_text(
    text: str, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_measure, "PIECE_BYTES", piece_bytes)
    measure_document(json.dumps({"input": [text, "and", text]}).encode(), LIMITS)


def weigh(value: object) -> int:
    """The weight of a value, counted in its objects."""
    if isinstance(value, dict):
        return 3 + 4 * len(value) + max(0, len(value) - 1) + sum(map(weigh, value.values()))
    if isinstance(value, list):
        return 2 + max(0, len(value) - 1) + sum(map(weigh, value))
    return 0


@given(value=VALUES, piece_bytes=st.integers(1, 50), ascii_only=st.booleans())
def test_a_precise_count_ignores_strings(value: object, piece_bytes: int, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_measure, "PIECE_BYTES", piece_bytes)
        assert json_measure._count_outside_strings(body, 10**9) == weigh(value)
        assert weigh_values(body, 10**9) >= weigh(value)


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (b'["' + b"a" * 500 + b'"]', 504),
        ('["' + "é" * 250 + '"]', 504),  # the count of bytes is bound enough
        ('["a' + "ж" * 250 + '"]', 2 * 255),
        (b'["' + b"\\u00e9" * 100 + b'"]', 2 * 604),
        (b'["' + b"\\uD83D\\uDE00" * 10 + b'"]', 4 * 124),
        ('["a' + "😀" * 250 + '"]', 4 * 255),
    ],
)
def test_the_widest_character_of_a_string_sets_the_size_of_all(body: bytes | str, size: int) -> None:
    body = body.encode() if isinstance(body, str) else body
    assert measure_document(body, LIMITS) == size + 2 * json_measure.VALUE_BYTES


def test_long_texts_with_a_wide_character_are_refused() -> None:
    body = ('["😀' + "a" * 1_000 + '"]').encode()
    with pytest.raises(InvalidJson, match="1000 characters"):
        measure_document(body, LIMITS)


PLAIN = "A" * 5_000


@pytest.mark.parametrize("piece_bytes", [7, 1000, 1024 * 1024])
@pytest.mark.parametrize(
    ("body", "plain"),
    [
        (f'["{PLAIN}","\U0001f600"]', 5_000),
        (f'["\U0001f600","{PLAIN}"]', 5_000),
        (f'[{{"image":"{PLAIN}"}},"\\ud83d\\ude00",{{"image":"{PLAIN}"}}]', 10_000),
        ('["\U0001f600","' + "A" * 900 + '"]', 0),
        (f'["{PLAIN}\U0001f600"]', 0),
        (f'["\U0001f600{PLAIN}"]', 0),
        (f'["\U0001f600\\"{PLAIN}"]', 0),
        (f'["{PLAIN}\\"\U0001f600"]', 0),
        (f'["{PLAIN}\\n","\U0001f600"]', 0),
        (f'["\U0001f600\\\\","{PLAIN}"]', 5_000),
        (f'{PLAIN}"\U0001f600"', 0),
        (f'["\U0001f600","{PLAIN}', 0),
    ],
)
def test_long_plain_strings_take_a_byte_for_each_character_beside_wide_ones(
    body: str, plain: int, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_measure, "PLAIN_BYTES", 1000)
    monkeypatch.setattr(json_measure, "PIECE_BYTES", piece_bytes)
    assert json_measure._count_plain(body.encode()) == plain
    if plain:
        assert measure_document(body.encode(), LIMITS) < 2 * len(body) + 20 * json_measure.VALUE_BYTES
    elif len(body) > 2_000:
        with pytest.raises(InvalidJson, match="more than 1000 characters"):
            measure_document(body.encode(), LIMITS)


@given(VALUES)
def test_pieces_are_the_document(value: object) -> None:
    assert b"".join(encode_in_pieces(value)) == encode_json(value)


@pytest.mark.parametrize(("spaces", "times"), [(90, 0), (100, 1)])
def test_the_memory_of_measuring_is_given_back_before_a_large_document_is_decoded(
    spaces: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[None] = []
    monkeypatch.setattr(json_measure, "LARGE_DOCUMENT_BYTES", 100)
    monkeypatch.setattr(json_measure, "return_freed_memory", lambda: given_back.append(None))
    measure_document(b"[]" + b" " * spaces, LIMITS)
    assert len(given_back) == times
