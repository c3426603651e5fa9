"""A mill tells the tokens of texts, however long, and what tokens spell, and asks no engine."""

from collections.abc import AsyncIterator

import pytest

from vecmill import Detokenize, InputConfig, Mill, MillConfig, Tokenize
from vecmill.engines.fake import FakeEngine
from vecmill.errors import InvalidRequest, NotReady, RequestTooLarge


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(dim=384)


@pytest.fixture
async def mill(engine: FakeEngine) -> AsyncIterator[Mill]:
    inputs = InputConfig(max_inputs=3, max_text_characters=5_000, max_request_characters=6_000)
    async with Mill(None, MillConfig(inputs=inputs), engine=engine) as mill:
        yield mill


async def test_tokens_come_with_their_places(mill: Mill, engine: FakeEngine) -> None:
    result = await mill.run(Tokenize(("hello world", "")))
    hello, empty = result.tokens
    assert [(token.token_id, token.piece, token.start, token.end) for token in hello] == [
        (101, "[CLS]", None, None),
        (7592, "hello", 0, 5),
        (2088, "world", 6, 11),
        (102, "[SEP]", None, None),
    ]
    assert [token.is_special for token in hello] == [True, False, False, True]
    assert [token.token_id for token in empty] == [101, 102]
    assert result.token_count == 6
    assert engine.calls == []


async def test_special_tokens_may_be_left_out(mill: Mill) -> None:
    (tokens,) = (await mill.run(Tokenize(("hello world",), special=False))).tokens
    assert [token.token_id for token in tokens] == [7592, 2088]


async def test_long_texts_are_not_cut(mill: Mill) -> None:
    assert (await mill.run(Tokenize(("hello " * 800,)))).token_count == 802


async def test_there_and_back(mill: Mill) -> None:
    ids = ((101, 7592, 2088, 102), (2088,))
    assert (await mill.run(Detokenize(ids))).texts == ("hello world", "world")
    assert (await mill.run(Detokenize(ids, skip_special=False))).texts == ("[CLS] hello world [SEP]", "world")


async def test_limits_hold_here_too(mill: Mill) -> None:
    with pytest.raises(InvalidRequest, match="has 4 items") as refusal:
        await mill.run(Tokenize(("a",) * 4))
    assert refusal.value.field == "input"
    with pytest.raises(RequestTooLarge):
        await mill.run(Tokenize(("a" * 4_000,) * 2))
    with pytest.raises(InvalidRequest, match="is empty"):
        await mill.run(Detokenize(()))
    with pytest.raises(InvalidRequest, match=r"^`tokens`: the token id at position 0 is outside"):
        await mill.run(Detokenize(((30_522,),)))
    with pytest.raises(
        InvalidRequest, match=r"^`tokens\[1\]`: the token id at position 2 is outside"
    ) as refusal:
        await mill.run(Detokenize(((101,), (101, 102, 30_522))))
    assert refusal.value.field == "tokens[1]"


async def test_nothing_is_read_before_the_start() -> None:
    with pytest.raises(NotReady):
        await Mill().run(Tokenize(("a",)))
