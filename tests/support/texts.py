"""Texts to embed: real prose that comes with Python, and texts that are hard on a tokenizer.

The prose is the manual behind `help()`, `pydoc_data.topics`: some 35,000 words. Every function
takes a seed, and gives the same texts for the same one.
"""

import functools
import math
import pydoc_data.topics
import random
from collections.abc import Callable

SHORTEST_WORDS, LONGEST_WORDS = 3, 280


@functools.cache
def prose_words() -> tuple[str, ...]:
    """The words of the manual's running text, in order; tables and code are left out."""
    words: list[str] = []
    for _, topic in sorted(pydoc_data.topics.topics.items()):
        for paragraph in topic.split("\n\n"):
            if not paragraph.startswith(" ") and "**" not in paragraph and "==" not in paragraph:
                words += paragraph.split()
    return tuple(words)


def short_texts(seed: int, count: int) -> list[str]:
    """Texts of 5 to 20 words."""
    return _cut(seed, count, lambda chance: chance.randint(5, 20))


def medium_texts(seed: int, count: int) -> list[str]:
    """Texts of 45 to 55 words."""
    return _cut(seed, count, lambda chance: chance.randint(45, 55))


def mixed_texts(seed: int, count: int) -> list[str]:
    """Texts of 3 to 280 words, their number log-normal: most are short, some are long."""
    return _cut(seed, count, _log_normal_words)


def long_texts(seed: int, count: int) -> list[str]:
    """Texts of 300 to 600 words, more than the embedded model reads."""
    return _cut(seed, count, lambda chance: chance.randint(300, 600))


def hard_texts() -> list[str]:
    """Texts that are hard on a tokenizer or a shape, each once."""
    words = prose_words()
    return [
        "",
        " ",
        " \t\r\n\u00a0\u2003 ",
        "a",
        "?",
        "漢",
        "🦊",
        "機械学習モデルは文章を数値の列に変換します。",
        "我们把每一段文字变成一个向量,以便比较它们的意思。",
        "우리는 문장을 벡터로 바꾸어 서로 비교한다.",
        "Les élèves naïfs mangent des crêpes à Noël; où ça?",
        "ﬁne ligatures, Ⅷ numerals, ½ fractions, ™ marks and ﷺ",
        "family 👨‍👩‍👧‍👦 flag 🏴󠁧󠁢󠁳󠁣󠁴󠁿 skin 👍🏽 heart ❤️",
        "שלום עולם, זה מבחן של כיווניות",
        "مرحبا بالعالم، هذا نص من اليمين إلى اليسار",
        "left \u202eright to left override\u202c and back",
        "e\u0301 a\u0308\u0323 o\u0302\u0301 " + "z" + "\u0335" * 60,
        "bell \x07 escape \x1b[31m vertical \x0b delete \x7f next line \x85",
        "before\x00after",
        "\x00",
        "\ufeffbyte order mark, soft\u00adhyphen, zero\u200bwidth, replacement \ufffd",
        "[SEP]",
        "[CLS] [SEP] [PAD] [MASK] [UNK]",
        "one sentence [SEP] another sentence [CLS] a third",
        "fill the [MASK] in, please",
        "##ing ##ed un##likely",
        "x" * 100,
        "x" * 101,
        "x" * 5_000,
        "pneumonoultramicroscopicsilicovolcanoconiosis" * 3,
        "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\Windows\\system32",
        "def f(x):\n\treturn {k: v for k, v in x.items() if v is not None}\n",
        "3.14159 2,718 1e-10 0xDEADBEEF 12:34:56 2026-11-21 −5 ½",
        "!?" * 400,
        "the " * 254,
        "the " * 255,
        " ".join((words * 2)[:10_000]),
    ]


def _log_normal_words(chance: random.Random) -> int:
    drawn = round(chance.lognormvariate(math.log(40), 0.9))
    return min(max(drawn, SHORTEST_WORDS), LONGEST_WORDS)


def _cut(seed: int, count: int, draw_words: Callable[[random.Random], int]) -> list[str]:
    """Passages that start anywhere in the prose, each different."""
    words = prose_words()
    chance = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        length = draw_words(chance)
        start = chance.randrange(len(words) - length)
        texts[" ".join(words[start : start + length])] = None
    return list(texts)
