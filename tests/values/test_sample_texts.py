"""The sample texts are the same everywhere: ranges of int8 embeddings are measured on them."""

import hashlib

from vecmill.values.sample_texts import LONGEST_WORDS, ODD_TEXTS, SHORTEST_WORDS, prose_words, sample_texts

# A change of the texts gives every model other int8 and uint8 embeddings.
DIGEST = "7101063db8131d6caace01e03422d7d004958f234ab5573faea01a49654e1e3e"


def test_every_python_and_every_release_has_the_same_texts() -> None:
    assert hashlib.sha256("\n".join(sample_texts(300)).encode()).hexdigest() == DIGEST


def test_texts_differ_and_have_the_lengths_of_passages() -> None:
    texts = sample_texts(2_000)
    assert len(set(texts)) == 2_000
    assert tuple(texts[: len(ODD_TEXTS)]) == ODD_TEXTS
    lengths = [len(text.split()) for text in texts[len(ODD_TEXTS) :]]
    assert SHORTEST_WORDS <= min(lengths) < 10
    assert 200 < max(lengths) <= LONGEST_WORDS


def test_the_prose_is_long_enough_for_thousands_of_passages() -> None:
    assert len(prose_words()) == 34_512
