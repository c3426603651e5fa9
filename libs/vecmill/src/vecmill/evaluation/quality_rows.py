"""The figures of an evaluation: a row for each model, plan, prompt, kind of search and form of vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vecmill.evaluation.retrieval_measures import NDCG, Values
from vecmill.evaluation.significance import Estimate
from vecmill.evaluation.text_encoders import SearchKind
from vecmill.evaluation.vector_forms import DenseForm


@dataclass(frozen=True, slots=True)
class Retriever:
    """What was evaluated. `reranker` orders the first documents that the search found."""

    model: str
    plan: str
    prompts: str
    search: SearchKind
    form: DenseForm = field(default_factory=DenseForm)
    reranker: str | None = None

    def describe(self) -> str:
        """Return a short name: `MODEL, onnx int8, 128 dimensions, ubinary, reranked by MODEL`."""
        parts = [self.model, self.plan]
        if self.prompts != "purpose":
            parts.append(f"prompts {self.prompts}")
        if self.search is not SearchKind.DENSE:
            parts.append(self.search)
        if self.form.dimensions is not None:
            parts.append(f"{self.form.dimensions} dimensions")
        if self.form.dtype != "float":
            parts.append(self.form.dtype)
        if self.reranker is not None:
            parts.append(f"reranked by {self.reranker}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document by id, the beginning of its text, and its place in the ranking, from 1, if it has one."""

    document: str
    text: str
    place: int | None


@dataclass(frozen=True, slots=True)
class WorstQuery:
    """A query with a low nDCG: its right answers, the most relevant first, and what was found instead."""

    query: str
    text: str
    ndcg: float
    right: tuple[FoundDocument, ...]
    found: tuple[FoundDocument, ...]


@dataclass(frozen=True, slots=True)
class QualityRow:
    """The figures of one retriever.

    `values` has each measure of each query, in the order of the queries, and `estimates` their means.
    `p_value` is that of the difference to the nDCG of the first row. `cosine_min` and `cosine_mean` compare
    the vectors of the documents with those of the first plan of the same model and prompts. `bytes_per_text`
    are those of the embeddings of a document, `texts_per_s` the speed at which documents were embedded.
    """

    retriever: Retriever
    values: Mapping[str, Values]
    estimates: Mapping[str, Estimate]
    p_value: float | None
    bytes_per_text: float
    texts_per_s: float | None = None
    cosine_min: float | None = None
    cosine_mean: float | None = None
    worst: tuple[WorstQuery, ...] = ()

    @property
    def ndcg(self) -> Estimate:
        """The mean nDCG@10."""
        return self.estimates[NDCG]


def find_best_row(rows: Sequence[QualityRow]) -> QualityRow:
    """Return the row with the highest nDCG, the first of equal ones."""
    return max(rows, key=lambda row: row.ndcg.mean)
