"""The texts of a benchmark, and the request bodies made of them."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Any

from vecmill.errors import InvalidConfig
from vecmill.values.sample_texts import cut_passages, draw_length

# Enough for a server's cache of equal texts to have no effect, and few enough to be made in a second.
REQUESTS = 2_000
MAX_TEXTS = 20_000

# In each block of so many texts, one is of the shortest, one of the longest, and so on.
_STRATA = 16
_JSON_LINES = (".jsonl", ".ndjson")
_QUERY = "Which of these passages explains how the value is computed?"


class TextSet(StrEnum):
    """The text sets that need no file. The texts are prose that comes with Python."""

    SHORT = "short"
    WORDS_50 = "50-words"
    MIXED = "mixed"
    LONG = "long"


class ServerApi(StrEnum):
    """The APIs that a server may have."""

    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    TEI_RERANK = "tei-rerank"


# The number of words of a text.
_LENGTHS: Mapping[TextSet, Callable[[random.Random], int]] = {
    TextSet.SHORT: lambda chance: chance.randint(5, 20),
    TextSet.WORDS_50: lambda chance: chance.randint(45, 55),
    TextSet.MIXED: draw_length,
    TextSet.LONG: lambda chance: chance.randint(300, 600),
}


def read_texts(name: str, count: int, seed: int) -> list[str]:
    """Return `count` texts of a text set, or the lines of a file in a seeded order, repeated to `count`.

    The first texts are as short and as long as all texts, so servers that answer few requests get the same
    lengths. Raises `InvalidConfig` if `name` is neither a text set nor a file with text.
    """
    chance = random.Random(seed)
    if name in tuple(TextSet):
        return _mix_lengths(cut_passages(seed, count, _LENGTHS[TextSet(name)]), chance)
    if Path(name).suffix.lower() in _JSON_LINES:
        raise InvalidConfig(f"--texts {name} has JSON on each line. Give a file with a text on each line.")
    try:
        lines = [line for line in Path(name).read_text("utf-8").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        sets = ", ".join(TextSet)
        raise InvalidConfig(
            f"--texts {name} is neither a file of UTF-8 nor one of {sets}: {error}"
        ) from error
    if not lines:
        raise InvalidConfig(f"--texts {name} has no text.")
    chance.shuffle(lines)
    drawn = _mix_lengths(lines[:count], chance)
    return [drawn[index % len(drawn)] for index in range(count)]


def _mix_lengths(texts: Sequence[str], chance: random.Random) -> list[str]:
    """Return the texts in a random order in which each block of texts has short, middle and long ones."""
    ordered = sorted(texts, key=len)
    size = -(-len(ordered) // _STRATA)
    strata = [ordered[begin : begin + size] for begin in range(0, len(ordered), size)]
    for stratum in strata:
        chance.shuffle(stratum)
    found: list[str] = []
    for block in zip_longest(*strata):
        mixed = [text for text in block if text is not None]
        chance.shuffle(mixed)
        found += mixed
    return found


def count_bytes(api: ServerApi, texts: Sequence[str]) -> int:
    """Return the bytes of the texts that a server tokenizes, with the query of a rerank API for each text."""
    query = "" if api is ServerApi.EMBEDDINGS else _QUERY
    return sum(len(text.encode()) + len(query) for text in texts)


def make_bodies(
    api: ServerApi, model: str, texts: Sequence[str], texts_per_request: int, encoding: str
) -> list[bytes]:
    """Return a JSON body for each group of `texts_per_request` texts; the last texts may be left out."""
    groups = (
        texts[begin : begin + texts_per_request]
        for begin in range(0, len(texts) - texts_per_request + 1, texts_per_request)
    )
    return [json.dumps(_body(api, model, group, encoding), ensure_ascii=False).encode() for group in groups]


def _body(api: ServerApi, model: str, texts: Sequence[str], encoding: str) -> Mapping[str, Any]:
    if api is ServerApi.TEI_RERANK:
        return {"query": _QUERY, "texts": list(texts)}
    if api is ServerApi.RERANK:
        return {"model": model, "query": _QUERY, "documents": list(texts)}
    inputs = texts[0] if len(texts) == 1 else list(texts)
    return {"model": model, "input": inputs, "encoding_format": encoding}
