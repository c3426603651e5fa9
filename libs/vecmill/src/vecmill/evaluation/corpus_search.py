"""One pass over a corpus: its documents are embedded block by block, and searched.

Dense vectors are kept, for the forms that are made of them. Sparse and multi-vector embeddings are compared
with the queries at once and dropped, so that no more than a block of them is in memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from vecmill.evaluation.document_scores import SparseBlock, TokenBlock, mix_scores, score_dense
from vecmill.evaluation.exact_search import BLOCK_QUERIES, BestDocuments, DocumentOrder, slices_of
from vecmill.evaluation.text_encoders import EvaluationEncoder, PromptPair, SearchKind, TextVectors
from vecmill.models.heads import Similarity
from vecmill.requests import HEAD_WEIGHTS, Purpose
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.clock import Clock, monotonic
from vecmill.vectors import normalize_embeddings

# The texts of a call: enough for full batches, and few enough for Ctrl-C, which waits for the calls that run.
# The vectors of the tokens of a long text take a hundred times as much as a dense one.
CALL_TEXTS, CALL_TEXTS_OF_TOKENS = 256, 128

# Takes what is done, and how much of how much.
Progress = Callable[[str, int, int], object]


@dataclass(frozen=True, slots=True)
class SearchTask:
    """What is searched: the queries, and how deep. For `without` see `BestDocuments.add`."""

    queries: Sequence[str]
    order: DocumentOrder
    depth: int
    without: IntArray | None = None
    weights: tuple[float, float, float] = HEAD_WEIGHTS


@dataclass(frozen=True, slots=True)
class CorpusPass:
    """What a pass found.

    `queries` and `documents` are the dense vectors, (n, dim) float32, `None` if none were asked for.
    `rankings` are the best documents of each query by kind of search, without those of dense vectors, and
    `bytes_per_text` the mean bytes of a document. `texts_per_s` is the speed at which documents were
    embedded.
    """

    queries: FloatArray | None
    documents: FloatArray | None
    rankings: Mapping[SearchKind, list[IntArray]]
    bytes_per_text: Mapping[SearchKind, float]
    texts_per_s: float | None


@dataclass
class _StreamedSearch:
    """A search of one kind whose documents are not kept."""

    kind: SearchKind
    task: SearchTask
    queries: TextVectors
    similarity: Similarity
    is_mean: bool
    bytes: int = 0
    best: BestDocuments = field(init=False)

    def __post_init__(self) -> None:
        self.best = BestDocuments(self.task.order, len(self.task.queries), self.task.depth)

    def add(self, first: int, documents: TextVectors) -> None:
        """Compare all queries with the documents from number `first` on."""
        sparse = None if documents.sparse is None else SparseBlock(documents.sparse)
        tokens = None if documents.tokens is None else TokenBlock(documents.tokens)
        dense = None if documents.dense is None else _comparable(documents.dense, self.similarity)
        self.bytes += _count_bytes(documents, self.kind)
        for some in slices_of(len(self.task.queries), BLOCK_QUERIES):
            scores = self._score(some, dense, sparse, tokens)
            hidden = None if self.task.without is None else self.task.without[some]
            self.best.add(some, first, scores, hidden)

    def _score(
        self, some: slice, dense: FloatArray | None, sparse: SparseBlock | None, tokens: TokenBlock | None
    ) -> FloatArray:
        parts = []
        for kind in self.kind.parts:
            if kind is SearchKind.SPARSE:
                assert sparse is not None
                assert self.queries.sparse is not None
                parts.append(sparse.score(self.queries.sparse[some]))
            elif kind is SearchKind.MULTI_VECTOR:
                assert tokens is not None
                assert self.queries.tokens is not None
                parts.append(tokens.score(self.queries.tokens[some], as_mean=self.is_mean))
            else:
                assert dense is not None
                assert self.queries.dense is not None
                queries = _comparable(self.queries.dense[some], self.similarity)
                parts.append(score_dense(queries, dense, self.similarity))
        return parts[0] if len(parts) == 1 else mix_scores(parts, self.task.weights)


def search_corpus(
    encoder: EvaluationEncoder,
    prompts: PromptPair,
    kinds: Sequence[SearchKind],
    task: SearchTask,
    texts: Iterable[str],
    tell: Progress,
    *,
    clock: Clock = monotonic,
) -> CorpusPass:
    """Embed queries and documents, and search by each of `kinds` but dense, whose vectors are returned.

    Raises the errors of the encoder.
    """
    traits, total = encoder.traits, len(task.order)
    parts = tuple(dict.fromkeys(part for kind in kinds for part in kind.parts))
    label = f"{traits.model}, {traits.plan}"
    queries = embed_queries(encoder, prompts, parts, task.queries, tell)
    is_mean = SearchKind.HYBRID in traits.searches
    streams = [
        _StreamedSearch(kind, task, queries, traits.similarity, is_mean)
        for kind in kinds
        if kind is not SearchKind.DENSE
    ]
    documents: FloatArray | None = None
    done, began = 0, clock()
    for found in _encode_blocks(encoder, texts, Purpose.DOCUMENT, prompts, parts):
        count = _count(found)
        if SearchKind.DENSE in kinds:
            assert found.dense is not None
            if documents is None:
                documents = np.empty((total, found.dense.shape[1]), np.float32)
            documents[done : done + count] = found.dense
        for stream in streams:
            stream.add(done, found)
        done += count
        tell(f"{label}: documents", done, total)
    took_s = clock() - began
    return CorpusPass(
        queries.dense,
        documents,
        {stream.kind: stream.best.rank() for stream in streams},
        {stream.kind: stream.bytes / total for stream in streams},
        total / took_s if took_s > 0 else None,
    )


def embed_queries(
    encoder: EvaluationEncoder,
    prompts: PromptPair,
    parts: Sequence[SearchKind],
    queries: Sequence[str],
    tell: Progress,
) -> TextVectors:
    """Embed all queries. Raises the errors of the encoder."""
    if not queries:
        return TextVectors()
    label, found = f"{encoder.traits.model}, {encoder.traits.plan}: queries", []
    done = 0
    for each in _encode_blocks(encoder, queries, Purpose.QUERY, prompts, parts):
        found.append(each)
        done += _count(each)
        tell(label, done, len(queries))
    dense = [each.dense for each in found if each.dense is not None]
    return TextVectors(
        np.concatenate(dense) if dense else None,
        None if found[0].sparse is None else [one for each in found for one in each.sparse or ()],
        None if found[0].tokens is None else [one for each in found for one in each.tokens or ()],
    )


def _encode_blocks(
    encoder: EvaluationEncoder,
    texts: Iterable[str],
    side: Purpose,
    prompts: PromptPair,
    parts: Sequence[SearchKind],
) -> Iterator[TextVectors]:
    """Embed the texts in calls, some at once, and return what each gives, in order."""
    size = CALL_TEXTS_OF_TOKENS if SearchKind.MULTI_VECTOR in parts else CALL_TEXTS
    left, at_once = iter(texts), encoder.traits.calls_at_once
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="vecmill-evaluation")
    try:
        waiting: deque[Future[TextVectors]] = deque()
        while block := list(islice(left, size)):
            waiting.append(pool.submit(encoder.encode, block, side, prompts, parts))
            if len(waiting) >= at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _count(found: TextVectors) -> int:
    known = next(each for each in (found.dense, found.sparse, found.tokens) if each is not None)
    return len(known)


def _comparable(rows: FloatArray, similarity: Similarity) -> FloatArray:
    return normalize_embeddings(rows) if similarity is Similarity.COSINE else rows


def _count_bytes(documents: TextVectors, kind: SearchKind) -> int:
    """Return the bytes of embeddings: a weight takes 4 and the number of its column 4."""
    total = 0
    if SearchKind.DENSE in kind.parts:
        assert documents.dense is not None
        total += documents.dense.nbytes
    if SearchKind.SPARSE in kind.parts:
        assert documents.sparse is not None
        total += sum(8 * len(one.columns) for one in documents.sparse)
    if SearchKind.MULTI_VECTOR in kind.parts:
        assert documents.tokens is not None
        total += sum(one.nbytes for one in documents.tokens)
    return total
