"""Labelled texts: real prose with judgements by chance."""

from functools import lru_cache

from support.texts import short_texts

DOCUMENTS, QUERIES = 60, 12

Labels = tuple[dict[str, str], dict[str, dict[str, int]], dict[str, str]]


@lru_cache
def draw_labels() -> Labels:
    """Queries, judgements and corpus. Some documents are equal, so that they tie."""
    texts = short_texts(1, DOCUMENTS - 10)
    corpus = {f"d{number}": text for number, text in enumerate([*texts, *texts[:10]])}
    queries = {f"q{number}": text for number, text in enumerate(short_texts(2, QUERIES))}
    judgements = {
        query: {f"d{(7 * number + step) % DOCUMENTS}": 1 + step % 3 for step in range(4)}
        for number, query in enumerate(queries)
    }
    return queries, judgements, corpus
