"""Texts to embed: real prose that comes with Python, and texts that are hard on a tokenizer.

Every function takes a seed, and gives the same texts for the same one.
"""

import random

from vecmill.values.sample_texts import cut_passages, draw_length, prose_words


def short_texts(seed: int, count: int) -> list[str]:
    """Texts of 5 to 20 words."""
    return cut_passages(seed, count, lambda chance: chance.randint(5, 20))


def medium_texts(seed: int, count: int) -> list[str]:
    """Texts of 45 to 55 words."""
    return cut_passages(seed, count, lambda chance: chance.randint(45, 55))


def mixed_texts(seed: int, count: int) -> list[str]:
    """Texts of 3 to 280 words, their number log-normal: most are short, some are long."""
    return cut_passages(seed, count, draw_length)


def long_texts(seed: int, count: int) -> list[str]:
    """Texts of 300 to 600 words, more than the embedded model reads."""
    return cut_passages(seed, count, lambda chance: chance.randint(300, 600))


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


# Texts that meet at every kind of boundary, and at places that only look like one.
SCRAPS = (
    *(" ", "  ", "\n", "\r\n", "\t", "\u3000", "\u00a0", "\u200b", "\u2028", "\0", "\ufeff"),
    *("the", "model", "reads", "WORD", "I'm", "they've", "x", "42", "1,000", "3.14", "½", "²", "Ⅷ"),
    *(",", ". ", "! ", "?", ") ", "(", "'s", "``", "''", "-", "_", "…", "\u2581", "\u2581the", "#", "@@"),
    *(
        "слово",
        "мир",
        "λόγος",
        "Σ",
        "ﬁne",
        "ｆｕｌｌ",
        "CAFÉ",
        "cafe\u0301",
        "e\u0301\u0302",
        "ß",
        "İ",
        "ﷺ",
        "ﹰ",
    ),
    *(
        "漢",
        "漢字",
        "语言",
        "，",
        "。",
        "、",
        "ひらがな",
        "カタカナ",
        "한국어",
        "\u1112\u1161\u11ab",
        "豈",
        "𠀀",
    ),
    *("שלום", "مرحبا", "نص", "हिन्दी", "क्\u200dष", "ไทย", "\u0e40", "\u0d4e", "\u0600", "\u0301", "\u200d"),
    *("😀", "👩\u200d💻", "🇩🇪", "e\ufe0f", "\U0001f3fb", "𝔘", "🄰"),
    *("<mask>", "[MASK]", "</s>", "<s>", "<unk>", "[UNK]", "<|endoftext|>"),
)


def random_text(draw: random.Random, scraps: int) -> str:
    """At most so many scraps, with spaces between them or without."""
    spaced = draw.random() < 0.5
    return (" " if spaced else "").join(draw.choice(SCRAPS) for _ in range(draw.randint(0, scraps)))
