"""Queries and their right texts, written in BEIR's form."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SEED = 0


@dataclass(frozen=True, slots=True)
class LabelledPairs:
    """Documents, queries, and the numbers of the right documents of each query."""

    documents: tuple[str, ...]
    queries: tuple[str, ...]
    right: tuple[tuple[int, ...], ...]

    def write(self, folder: Path) -> None:
        """Write queries.jsonl, corpus.jsonl and qrels.tsv."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, letter, texts in (("queries", "q", self.queries), ("corpus", "d", self.documents)):
            lines = [
                json.dumps({"_id": f"{letter}{number}", "text": text}, ensure_ascii=False)
                for number, text in enumerate(texts)
            ]
            (folder / f"{name}.jsonl").write_text("\n".join([*lines, ""]), "utf-8")
        judged = [
            f"q{number}\td{document}\t1"
            for number, documents in enumerate(self.right)
            for document in documents
        ]
        (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged, ""]), "utf-8")


def keep_distinct(pairs: Sequence[tuple[str, str]], most_queries: int) -> LabelledPairs:
    """Keep pairs whose query and text no other pair has, and draw queries by chance: all texts stay."""
    queries, texts = (Counter(each) for each in zip(*pairs, strict=True))
    kept = [(query, text) for query, text in pairs if queries[query] == texts[text] == 1]
    drawn = sorted(random.Random(SEED).sample(range(len(kept)), min(most_queries, len(kept))))
    return LabelledPairs(
        tuple(text for _, text in kept),
        tuple(kept[number][0] for number in drawn),
        tuple((number,) for number in drawn),
    )
