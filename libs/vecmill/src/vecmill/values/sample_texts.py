"""Sample texts for checks and calibration if the user gives no texts.

The texts are cut from prose that is a part of the package, so that every release of Python has the same: the
ranges of int8 embeddings are measured on them. It is a part of Python's manual (`LICENSE.prose`).
"""

import math
import random
from collections.abc import Callable
from pathlib import Path

SHORTEST_WORDS, LONGEST_WORDS = 3, 280

PROSE = Path(__file__).with_name("prose.txt")

# Texts that prose does not have, and that tokenizers and models stumble over.
ODD_TEXTS = (
    "",
    "a",
    "🦊",
    "機械学習モデルは文章を数値の列に変換します。",
    "مرحبا بالعالم، هذا نص من اليمين إلى اليسار",
    "before\x00after \x07 \x1b[31m",
    "one sentence [SEP] another sentence",
    "word " * 10_000,
)


def sample_texts(count: int, *, seed: int = 0) -> list[str]:
    """Return `count` different texts: unusual texts, and passages of 3 to 280 words (log-normal)."""
    passages = cut_passages(seed, max(0, count - len(ODD_TEXTS)), draw_length)
    return [*ODD_TEXTS, *passages][:count]


def draw_length(chance: random.Random) -> int:
    """Draw a number of words: most texts are short, some are long."""
    drawn = round(chance.lognormvariate(math.log(40), 0.9))
    return min(max(drawn, SHORTEST_WORDS), LONGEST_WORDS)


def cut_passages(seed: int, count: int, draw_words: Callable[[random.Random], int]) -> list[str]:
    """Cut passages that start anywhere in the prose, each different, with a drawn number of words."""
    words = prose_words()
    chance = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        length = draw_words(chance)
        start = chance.randrange(len(words) - length)
        texts[" ".join(words[start : start + length])] = None
    return list(texts)


def prose_words() -> list[str]:
    """Return the words of the prose, about 35,000, in order."""
    return PROSE.read_text("utf-8").split()
