"""What a model is asked when it is checked: texts, pairs of texts, or queries and documents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vecmill.models import ModelDescription, Task
from vecmill.reading import Purpose

# Twice as many as the best that are compared, and one query for all of them.
DOCUMENTS_OF_A_QUERY = 30
# Each query is compared with every document.
TEXTS_OF_A_QUERY = 10


@dataclass(frozen=True, slots=True)
class Question:
    """One input. `second` is the other text of a pair; `side` counts for multi-vector models alone."""

    text: str
    second: str | None = None
    side: Purpose = Purpose.DOCUMENT

    @property
    def as_input(self) -> str | tuple[str, str]:
        """The text, or the pair."""
        return self.text if self.second is None else (self.text, self.second)


Questions = tuple[Question, ...]


def is_plain(description: ModelDescription) -> bool:
    """Whether transformers saved the model, and not sentence-transformers."""
    return not (description.directory / "modules.json").exists()


def make_questions(description: ModelDescription, texts: Sequence[str]) -> Questions:
    """What a model is asked about `texts`.

    A reranker gets a query with its documents, time after time; a classifier every text alone, and pairs of
    neighbours; a multi-vector model all as documents and some as queries; every other model each text.
    """
    match description.task:
        case Task.RERANK:
            return tuple(_ask_for_documents(texts))
        case Task.CLASSIFY if not is_plain(description):
            return tuple(_pair_neighbours(texts))  # CrossEncoder takes nothing else
        case Task.CLASSIFY:
            return (*map(Question, texts), *_pair_neighbours(texts))
        case Task.MULTI_VECTOR:
            queries = texts[::TEXTS_OF_A_QUERY]
            return (*map(Question, texts), *(Question(text, side=Purpose.QUERY) for text in queries))
        case Task.EMBED | Task.SPARSE | Task.CLASSIFY_TOKENS:
            return tuple(map(Question, texts))


def _ask_for_documents(texts: Sequence[str]) -> Iterator[Question]:
    if len(texts) == 1:
        yield Question(texts[0], texts[0])
    for start in range(0, len(texts), DOCUMENTS_OF_A_QUERY + 1):
        query, *documents = texts[start : start + DOCUMENTS_OF_A_QUERY + 1]
        for document in documents:
            yield Question(query, document)


def _pair_neighbours(texts: Sequence[str]) -> Iterator[Question]:
    for first, second in zip(texts[::2], texts[1::2], strict=False):
        # transformers' pipeline takes a pair whose second text is empty for a single text.
        if second:
            yield Question(first, second)
