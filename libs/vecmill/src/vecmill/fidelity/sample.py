"""Texts to check a model with, where the user has given none: real prose that comes with Python."""

import math
import pydoc_data.topics
import random

SHORTEST_WORDS, LONGEST_WORDS = 3, 280

# What prose does not have, and models stumble over.
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
    """`count` different texts: some odd ones, and passages of 3 to 280 words, log-normal in length."""
    words = [
        word
        for _, topic in sorted(pydoc_data.topics.topics.items())
        for paragraph in topic.split("\n\n")
        if not paragraph.startswith(" ") and "**" not in paragraph and "==" not in paragraph
        for word in paragraph.split()
    ]
    chance = random.Random(seed)
    texts = dict.fromkeys(ODD_TEXTS)
    while len(texts) < count:
        length = min(max(round(chance.lognormvariate(math.log(40), 0.9)), SHORTEST_WORDS), LONGEST_WORDS)
        start = chance.randrange(len(words) - length)
        texts[" ".join(words[start : start + length])] = None
    return list(texts)[:count]
