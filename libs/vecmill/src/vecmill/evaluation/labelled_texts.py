"""Labelled texts: queries, the documents that answer them, and the corpus that is searched."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vecmill.errors import InvalidCorpus

# The relevance of each judged document of each query: by the id of the query, then of the document.
Judgements = Mapping[str, Mapping[str, int]]


class Corpus(Protocol):
    """The documents that are searched. Only their ids are kept in memory."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all documents, each once."""
        ...

    def texts(self) -> Iterator[str]:
        """Return the texts in the order of `ids`."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryCorpus:
    """A corpus in memory: texts by id."""

    documents: Mapping[str, str]

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all documents."""
        return list(self.documents)

    def texts(self) -> Iterator[str]:
        """Return the texts in the order of `ids`."""
        return iter(self.documents.values())


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Queries with right answers, and the corpus.

    `queries` are those that have at least one right answer, a document of a relevance above 0, by id.
    `judgements` are theirs. `unanswered` other queries were left out. `missing` right answers are not in the
    corpus: they count as not found.
    """

    queries: Mapping[str, str]
    judgements: Judgements
    corpus: Corpus
    unanswered: int = 0
    missing: int = 0

    @classmethod
    def of(cls, queries: Mapping[str, str], judgements: Judgements, corpus: Corpus) -> "LabelledTexts":
        """Join queries, judgements and corpus. Raises `InvalidCorpus` if no query has a right answer."""
        answered = {
            query: dict(judgements[query])
            for query in queries
            if any(relevance > 0 for relevance in judgements.get(query, {}).values())
        }
        if not answered:
            raise InvalidCorpus(
                f"None of the {len(queries)} queries has a right answer. "
                f"{_compare_ids('queries', queries, 'judgements', judgements)}"
            )
        known = set(corpus.ids)
        right = [document for judged in answered.values() for document, value in judged.items() if value > 0]
        missing = sum(document not in known for document in right)
        if missing == len(right):
            raise InvalidCorpus(
                f"None of the {len(right)} right answers is in the corpus of {len(known)} documents. "
                f"{_compare_ids('judgements', right, 'corpus', corpus.ids)}"
            )
        kept = {query: queries[query] for query in answered}
        return cls(kept, answered, corpus, len(queries) - len(kept), missing)


def find_texts(corpus: Corpus, ids: Iterable[str]) -> dict[str, str]:
    """Return the texts of some documents, by one pass over the corpus."""
    wanted = set(ids)
    both = zip(corpus.ids, corpus.texts(), strict=True)
    return {document: text for document, text in both if document in wanted}


def _compare_ids(left: str, ids: Iterable[str], right: str, others: Iterable[str]) -> str:
    """Return a sentence with an id of each side, so that another spelling is seen."""
    first, second = next(iter(ids), None), next(iter(others), None)
    return f"An id of the {left} is {first!r}, and one of the {right} {second!r}."
