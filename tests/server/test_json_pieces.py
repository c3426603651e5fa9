"""Large documents are encoded in pieces, since a call of orjson blocks the event loop."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vecmill_server.base.json_io import PIECE_ITEMS, encode_in_pieces, encode_json
from vecmill_server.dialects.token_writing import Written

TEXTS, TOKENS, DIM = 40, 100, 64
STATES = np.full((TOKENS, DIM), 0.125, np.float32)
LONGEST = len(encode_json(STATES[:PIECE_ITEMS])) + 100


def describe(index: int) -> dict[str, Any]:
    return {"id": index, "text": "x" * DIM}


@pytest.mark.parametrize(
    "item",
    [
        lambda: list(STATES),
        lambda: STATES,
        lambda: {"index": 0, "data": STATES},
        lambda: Written(TOKENS, describe),
    ],
    ids=["lists", "array", "in an object", "written late"],
)
@pytest.mark.parametrize("texts", [2, TEXTS])
def test_the_tokens_of_many_texts_are_not_encoded_in_one_call(item: Callable[[], Any], texts: int) -> None:
    short = [[0.5]] if isinstance(item(), list) else item()  # the first text tells nothing of the others
    value = {"data": [short, *(item() for _ in range(texts))]}
    pieces = encode_in_pieces(value)
    assert b"".join(pieces) == encode_json(value)
    assert max(map(len, pieces)) <= LONGEST


def test_embeddings_of_many_texts_share_pieces() -> None:
    value = [{"index": index, "embedding": [STATES[0]]} for index in range(TEXTS)]
    assert len(encode_in_pieces(value)) == -(-TEXTS // PIECE_ITEMS) + 1
