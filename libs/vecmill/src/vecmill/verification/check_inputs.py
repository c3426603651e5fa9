"""The inputs of a check, made from texts: single texts, pairs of texts, or queries and documents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vecmill.models import ModelDescription, Task
from vecmill.requests import Purpose

# More than twice the number of best documents that are compared.
DOCUMENTS_PER_QUERY = 30
# Each query is compared with every document.
TEXTS_PER_QUERY = 10


@dataclass(frozen=True, slots=True)
class CheckInput:
    """One input. `second` is the second text of a pair; only multi-vector models use `purpose`."""

    text: str
    second: str | None = None
    purpose: Purpose = Purpose.DOCUMENT

    @property
    def text_or_pair(self) -> str | tuple[str, str]:
        """The single text, or the pair of texts."""
        return self.text if self.second is None else (self.text, self.second)


CheckInputs = tuple[CheckInput, ...]


def saved_by_transformers(description: ModelDescription) -> bool:
    """Return whether transformers saved the model, instead of sentence-transformers."""
    return not (description.directory / "modules.json").exists()


def make_check_inputs(description: ModelDescription, texts: Sequence[str]) -> CheckInputs:
    """Make the inputs of a check from `texts`, by the task of the model.

    A reranker gets groups of texts; each group is a query with its documents. A classifier gets single texts,
    and pairs of adjacent texts. A multi-vector model gets all texts as documents and some as queries. All
    other models get single texts.
    """
    match description.task:
        case Task.RERANK:
            return tuple(_pair_with_documents(texts))
        case Task.CLASSIFY if not saved_by_transformers(description):
            return tuple(_pair_adjacent(texts))  # CrossEncoder accepts only pairs
        case Task.CLASSIFY:
            return (*map(CheckInput, texts), *_pair_adjacent(texts))
        case Task.MULTI_VECTOR:
            queries = texts[::TEXTS_PER_QUERY]
            return (*map(CheckInput, texts), *(CheckInput(text, purpose=Purpose.QUERY) for text in queries))
        case Task.EMBED | Task.SPARSE | Task.CLASSIFY_TOKENS:
            return tuple(map(CheckInput, texts))


def _pair_with_documents(texts: Sequence[str]) -> Iterator[CheckInput]:
    if len(texts) == 1:
        yield CheckInput(texts[0], texts[0])
    for start in range(0, len(texts), DOCUMENTS_PER_QUERY + 1):
        query, *documents = texts[start : start + DOCUMENTS_PER_QUERY + 1]
        for document in documents:
            yield CheckInput(query, document)


def _pair_adjacent(texts: Sequence[str]) -> Iterator[CheckInput]:
    for first, second in zip(texts[::2], texts[1::2], strict=False):
        # transformers' pipeline treats a pair with an empty second text as a single text.
        if second:
            yield CheckInput(first, second)
