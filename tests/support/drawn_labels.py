"""Labelled texts: real prose with judgements by chance."""

import json
from functools import lru_cache
from pathlib import Path

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


def write_labels(folder: Path) -> tuple[Path, Path, Path]:
    """Write them in BEIR's form, and return the files of queries, judgements and corpus."""
    queries, judgements, corpus = draw_labels()
    for name, texts in (("queries", queries), ("corpus", corpus)):
        lines = [json.dumps({"_id": each, "text": text}) for each, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    judged = [f"{query}\t{each}\t{value}" for query, of in judgements.items() for each, value in of.items()]
    (folder / "qrels.tsv").write_text("\n".join(judged), "utf-8")
    return folder / "queries.jsonl", folder / "qrels.tsv", folder / "corpus.jsonl"
