"""The report of an evaluation: as Markdown, as a JSON object, and as a page with plots."""

from dataclasses import asdict, dataclass
from typing import Any

from vecmill.evaluation.quality_page import write_page
from vecmill.evaluation.quality_rows import QualityRow
from vecmill.evaluation.quality_tables import describe_method, list_cells, list_headings, write_markdown
from vecmill.evaluation.retrieval_measures import NDCG
from vecmill.evaluation.significance import find_p_value


@dataclass(frozen=True, slots=True)
class EvaluatedTexts:
    """The labelled texts of an evaluation, and the settings of its measures; see `LabelledTexts`."""

    queries: tuple[str, ...]
    documents: int
    unanswered: int
    missing: int
    recall_at: tuple[int, ...]
    seed: int

    def lines(self) -> list[str]:
        """Return what was evaluated, as sentences."""
        found = [f"{len(self.queries):,} queries, {self.documents:,} documents."]
        if self.unanswered:
            found.append(f"{self.unanswered:,} queries without a right answer were left out.")
        if self.missing:
            found.append(f"{self.missing:,} right answers are not in the corpus, and count as not found.")
        return found


@dataclass(frozen=True, slots=True)
class QualityReport:
    """The figures of all retrievers, in the order in which they were evaluated."""

    rows: tuple[QualityRow, ...]
    texts: EvaluatedTexts

    def find_p_value(self, first: int, second: int) -> float:
        """Return the p-value of the difference in nDCG@10 of two rows."""
        values = [self.rows[number].values[NDCG] for number in (first, second)]
        return find_p_value(values[0], values[1], seed=self.texts.seed)

    def markdown(self) -> str:
        """Return the report in Markdown."""
        return write_markdown(self.rows, self.texts.lines(), self.texts.recall_at)

    def html(self) -> str:
        """Return a page that needs no other file."""
        heads = list_headings(self.texts.recall_at)
        cells = [list_cells(row, self.texts.recall_at) for row in self.rows]
        return write_page(self.rows, self.texts.lines(), [*describe_method()], heads, cells)

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON object, with the nDCG of each query."""
        about = {**asdict(self.texts), "queries": len(self.texts.queries)}
        return {**about, "query_ids": list(self.texts.queries), "rows": [_describe(row) for row in self.rows]}


def _describe(row: QualityRow) -> dict[str, Any]:
    retriever = row.retriever
    return {
        "model": retriever.model,
        "plan": retriever.plan,
        "prompts": retriever.prompts,
        "search": retriever.search.value,
        "dimensions": retriever.form.dimensions,
        "dtype": retriever.form.dtype.value,
        "reranker": retriever.reranker,
        "measures": {name: asdict(each) for name, each in row.estimates.items()},
        "p_value": row.p_value,
        "cosine_min": row.cosine_min,
        "cosine_mean": row.cosine_mean,
        "bytes_per_text": row.bytes_per_text,
        "texts_per_s": row.texts_per_s,
        "ndcg_by_query": row.values[NDCG].tolist(),
        "worst_queries": [asdict(each) for each in row.worst],
    }
