"""The evaluation of models on labelled texts: a row for each model, plan, prompt, search and form."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vecmill.errors import InvalidConfig
from vecmill.evaluation.corpus_search import (
    CorpusPass,
    Progress,
    SearchTask,
    embed_queries,
    search_corpus,
)
from vecmill.evaluation.exact_search import DocumentOrder, rank_documents, slices_of
from vecmill.evaluation.labelled_files import (
    FileCorpus,
    read_judgements,
    read_pairs,
    read_queries,
)
from vecmill.evaluation.labelled_texts import Judgements, LabelledTexts, MemoryCorpus, find_texts
from vecmill.evaluation.quality_report import EvaluatedTexts, QualityReport
from vecmill.evaluation.quality_rows import FoundDocument, QualityRow, Retriever, WorstQuery
from vecmill.evaluation.retrieval_measures import NDCG, RANKED, import_measures, measure_rankings
from vecmill.evaluation.significance import estimate_mean, find_p_value
from vecmill.evaluation.stored_documents import StoredDocuments, read_documents
from vecmill.evaluation.text_encoders import (
    EvaluatedModel,
    EvaluationEncoder,
    PromptPair,
    SearchKind,
    open_encoder,
    open_mill,
)
from vecmill.evaluation.vector_forms import DenseForm, DenseVectors
from vecmill.requests import HEAD_WEIGHTS
from vecmill.sync import SyncMill
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.output_kinds import OutputDtype
from vecmill.vectors import normalize_embeddings

WORST_QUERIES, SHOWN_FOUND, SHOWN_CHARACTERS = 10, 3, 160

TextsSource = str | Path | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """What is evaluated, beside the models; see `evaluate`."""

    plans: Sequence[str] = ()
    prompts: Sequence[str] = ("purpose",)
    dimensions: Sequence[int] = ()
    dtypes: Sequence[str] = ("float",)
    searches: Sequence[str] = ()
    weights: tuple[float, float, float] = HEAD_WEIGHTS
    reranker: str | Path | SyncMill | None = None
    rerank_top: int = 100
    recall_at: Sequence[int] = (10, 100)
    document_vectors: str | Path | None = None
    skips_same_id: bool = False
    api_key: str | None = None
    cache_dir: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _choose("dtypes", self.dtypes, OutputDtype)
        _choose("searches", self.searches, SearchKind)
        if min((*self.recall_at, self.rerank_top)) < 1:
            raise InvalidConfig("The numbers of documents for recall and reranking must be at least 1.")

    @property
    def depth(self) -> int:
        """How many documents of each query are found."""
        return max(RANKED, *self.recall_at, self.rerank_top if self.reranker is not None else 0)

    @property
    def forms(self) -> list[DenseForm]:
        """The forms of dense vectors, those of all dimensions first."""
        sizes = [None, *dict.fromkeys(self.dimensions)]
        return [DenseForm(size, OutputDtype(dtype)) for size in sizes for dtype in dict.fromkeys(self.dtypes)]


def evaluate(
    models: EvaluatedModel | Sequence[EvaluatedModel],
    queries: TextsSource | None = None,
    qrels: str | Path | Judgements | None = None,
    corpus: TextsSource | None = None,
    *,
    pairs: str | Path | None = None,
    options: EvaluationOptions | None = None,
    on_progress: Progress = lambda what, done, total: None,
    **settings: object,
) -> QualityReport:
    """Evaluate how well models find the right texts of labelled queries.

    A model is a directory, a name on a hub, the address of a server, a `SyncMill`, or a function of texts and
    "query" or "document" that returns (texts, dim). Queries, `qrels` and corpus are files in the forms of
    BEIR, MTEB and TREC, or mappings: texts by id, and relevances by the ids of query and document. `pairs` is
    a file of queries and right texts instead of the three.

    Further keywords, or `options`: `plans` such as "openvino:int8"; `prompts`: "purpose", "none" or
    "QUERY:DOCUMENT"; `dimensions`; `dtypes`; `searches`: "dense", "sparse", "multi-vector", "hybrid" with
    `weights`; `reranker`, a model that orders the first `rerank_top` documents; `recall_at`;
    `document_vectors`, a Parquet file of `vecmill embed`; `skips_same_id`, for corpora that contain the
    queries; `api_key` of servers; `cache_dir`; `seed`.

    Raises `SetupError`, `MissingExtra` without ir_measures, and the errors of the models.
    """
    chosen = options or EvaluationOptions(**settings)  # type: ignore[arg-type]  # named as its fields
    import_measures()  # before anything is computed
    labelled = _read(queries, qrels, corpus, pairs)
    sources = list(models) if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    return _Evaluation(labelled, chosen, on_progress).run(sources)


@dataclass(frozen=True, slots=True)
class _Draft:
    """What a retriever found: the numbers of the documents of each query."""

    retriever: Retriever
    rankings: list[IntArray]
    bytes_per_text: float
    texts_per_s: float | None = None
    cosines: FloatArray | None = None


class _Evaluation:
    """One evaluation, of models one after the other."""

    def __init__(self, labelled: LabelledTexts, options: EvaluationOptions, tell: Progress) -> None:
        self._labelled = labelled
        self._options = options
        self._tell = tell
        order = DocumentOrder(labelled.corpus.ids)
        without = _numbers_of(labelled) if options.skips_same_id else None
        self._task = SearchTask(
            list(labelled.queries.values()), order, options.depth, without, options.weights
        )

    def run(self, models: Sequence[EvaluatedModel]) -> QualityReport:
        """Evaluate all models. Raises `SetupError`, and the errors of the models."""
        if not models:
            raise InvalidConfig("Name at least one model.")
        with ExitStack() as stack:
            reranker = self._open_reranker(stack)
            drafts = [draft for model in models for draft in self._evaluate_model(model, reranker)]
        rows: list[QualityRow] = []
        for draft in drafts:
            rows.append(self._finish(draft, rows))
        found = [self._find_worst(draft, row) for draft, row in zip(drafts, rows, strict=True)]
        return QualityReport(self._add_texts(rows, found), self._about())

    def _about(self) -> EvaluatedTexts:
        labelled, options = self._labelled, self._options
        return EvaluatedTexts(
            tuple(labelled.queries),
            len(labelled.corpus.ids),
            labelled.unanswered,
            labelled.missing,
            tuple(dict.fromkeys(options.recall_at)),
            options.seed,
        )

    def _open_reranker(self, stack: ExitStack) -> SyncMill | None:
        chosen = self._options.reranker
        if chosen is None or isinstance(chosen, SyncMill):
            return chosen
        return stack.enter_context(open_mill(chosen, None, self._options.cache_dir))

    def _evaluate_model(self, model: EvaluatedModel, reranker: SyncMill | None) -> Iterator[_Draft]:
        options = self._options
        for name in options.prompts:
            prompts = PromptPair.parse(name)
            first: FloatArray | None = None
            for plan in options.plans or (None,):
                with open_encoder(
                    model, plan, prompts, api_key=options.api_key, cache_dir=options.cache_dir
                ) as encoder:
                    found = self._search(encoder, prompts)
                    if found.documents is not None and first is not None:
                        cosines = compare_vectors(found.documents, first)
                    else:
                        cosines = None
                    for draft in self._list_drafts(encoder, prompts, found, cosines):
                        yield draft
                        if reranker is not None and draft.retriever.form == DenseForm():
                            yield self._rerank(draft, reranker)
                    if len(options.plans) > 1 and first is None:
                        first = found.documents

    def _search(self, encoder: EvaluationEncoder, prompts: PromptPair) -> CorpusPass:
        """Embed queries and documents, or read the documents from a file."""
        options, traits = self._options, encoder.traits
        kinds = [SearchKind(name) for name in dict.fromkeys(options.searches)] or [traits.searches[0]]
        for kind in kinds:
            if kind not in traits.searches:
                raise InvalidConfig(
                    f"{traits.model} cannot be searched by {kind}, only by {', '.join(traits.searches)}."
                )
        if traits.dim is not None and SearchKind.DENSE in kinds:
            for form in options.forms:
                form.check(traits.dim, traits.model)
        if options.document_vectors is not None:
            return self._search_stored(encoder, prompts, kinds, Path(options.document_vectors))
        return search_corpus(encoder, prompts, kinds, self._task, self._labelled.corpus.texts(), self._tell)

    def _search_stored(
        self, encoder: EvaluationEncoder, prompts: PromptPair, kinds: Sequence[SearchKind], path: Path
    ) -> CorpusPass:
        if kinds != [SearchKind.DENSE]:
            raise InvalidConfig(f"The file {path} has dense vectors, which no other search can use.")
        stored: StoredDocuments = read_documents(path, self._task.order.ids)
        stored.require_space(encoder.traits.space, encoder.traits.model, path)
        queries = embed_queries(encoder, prompts, kinds, self._task.queries, self._tell).dense
        assert queries is not None
        if queries.shape[1] != stored.vectors.shape[1]:
            raise InvalidConfig(
                f"The vectors of {path} have {stored.vectors.shape[1]} dimensions, and those of "
                f"{encoder.traits.model} have {queries.shape[1]}."
            )
        return CorpusPass(queries, stored.vectors, {}, {}, None)

    def _list_drafts(
        self, encoder: EvaluationEncoder, prompts: PromptPair, found: CorpusPass, cosines: FloatArray | None
    ) -> Iterator[_Draft]:
        traits = encoder.traits
        for kind, rankings in found.rankings.items():
            retriever = Retriever(traits.model, traits.plan, prompts.label, kind)
            yield _Draft(retriever, rankings, found.bytes_per_text[kind], found.texts_per_s)
        if found.documents is None:
            return
        assert found.queries is not None
        dim = found.documents.shape[1]
        vectors = DenseVectors(
            found.queries, found.documents, traits.similarity, traits.is_normalized, encoder.find_ranges
        )
        for form in self._options.forms:
            form.check(dim, traits.model)
            if form.dimensions == dim:
                continue  # the row with all dimensions
            retriever = Retriever(traits.model, traits.plan, prompts.label, SearchKind.DENSE, form)
            rankings = vectors.search(form, self._task.order, self._task.depth, self._task.without)
            own = cosines if form == DenseForm() else None
            yield _Draft(retriever, rankings, form.count_bytes(dim), found.texts_per_s, own)

    def _rerank(self, draft: _Draft, reranker: SyncMill) -> _Draft:
        """Order the first documents of each query by the scores of the reranker."""
        top, ids = self._options.rerank_top, self._task.order.ids
        name = reranker.description.name
        wanted = {ids[number] for found in draft.rankings for number in found[:top]}
        texts = find_texts(self._labelled.corpus, wanted)
        ranked = []
        for query, found in zip(self._task.queries, draft.rankings, strict=True):
            scores = reranker.rerank(query, [texts[ids[number]] for number in found[:top]]).scores
            ranked.append(
                np.concatenate([rank_documents(self._task.order, found[:top], scores), found[top:]])
            )
            self._tell(f"{name}: queries reranked", len(ranked), len(draft.rankings))
        return replace(
            draft, retriever=replace(draft.retriever, reranker=name), rankings=ranked, texts_per_s=None
        )

    def _finish(self, draft: _Draft, rows: Sequence[QualityRow]) -> QualityRow:
        """Measure what was found, and compare it with the first row."""
        ids, seed = self._task.order.ids, self._options.seed
        rankings = {
            query: [ids[number] for number in found]
            for query, found in zip(self._labelled.queries, draft.rankings, strict=True)
        }
        values = measure_rankings(self._labelled.judgements, rankings, self._options.recall_at)
        return QualityRow(
            draft.retriever,
            values,
            {name: estimate_mean(each, seed=seed) for name, each in values.items()},
            find_p_value(values[NDCG], rows[0].values[NDCG], seed=seed) if rows else None,
            draft.bytes_per_text,
            draft.texts_per_s,
            None if draft.cosines is None else float(draft.cosines.min()),
            None if draft.cosines is None else float(draft.cosines.mean()),
        )

    def _find_worst(self, draft: _Draft, row: QualityRow) -> tuple[WorstQuery, ...]:
        """Return the queries with the lowest nDCG, without the texts of documents."""
        ids, ndcg = self._task.order.ids, row.values[NDCG]
        numbers = np.argsort(ndcg, kind="stable")[:WORST_QUERIES]
        queries = list(self._labelled.queries.items())
        worst = []
        for number in numbers.tolist():
            query, text = queries[number]
            places = {ids[found]: place for place, found in enumerate(draft.rankings[number], 1)}
            judged = self._labelled.judgements[query]
            best = sorted((each for each in judged if judged[each] > 0), key=lambda each: -judged[each])
            right = tuple(FoundDocument(each, "", places.get(each)) for each in best[:SHOWN_FOUND])
            wrong = [each for each in places if judged.get(each, 0) <= 0][:SHOWN_FOUND]
            found = tuple(FoundDocument(each, "", places[each]) for each in wrong)
            worst.append(WorstQuery(query, text, float(ndcg[number]), right, found))
        return tuple(worst)

    def _add_texts(
        self, rows: Sequence[QualityRow], found: Sequence[Sequence[WorstQuery]]
    ) -> tuple[QualityRow, ...]:
        shown = {each.document for worst in found for one in worst for each in (*one.right, *one.found)}
        texts = find_texts(self._labelled.corpus, shown)

        def tell(documents: Sequence[FoundDocument]) -> tuple[FoundDocument, ...]:
            return tuple(replace(each, text=_shorten(texts.get(each.document, ""))) for each in documents)

        return tuple(
            replace(
                row,
                worst=tuple(replace(one, right=tell(one.right), found=tell(one.found)) for one in worst),
            )
            for row, worst in zip(rows, found, strict=True)
        )


def compare_vectors(vectors: FloatArray, others: FloatArray) -> FloatArray:
    """Return the cosine (n,) of each of n vectors (n, dim) with another one."""
    return np.concatenate(
        [
            (normalize_embeddings(vectors[some]) * normalize_embeddings(others[some])).sum(axis=1)
            for some in slices_of(len(vectors), 8_192)
        ]
    )


def _read(
    queries: TextsSource | None,
    qrels: str | Path | Judgements | None,
    corpus: TextsSource | None,
    pairs: str | Path | None,
) -> LabelledTexts:
    if pairs is not None and (queries, qrels, corpus) == (None, None, None):
        return read_pairs(Path(pairs))
    if pairs is not None or queries is None or qrels is None or corpus is None:
        raise InvalidConfig("Name queries, qrels and corpus, or only a file of pairs.")
    return LabelledTexts.of(
        queries if isinstance(queries, Mapping) else read_queries(Path(queries)),
        qrels if isinstance(qrels, Mapping) else read_judgements(Path(qrels)),
        MemoryCorpus(corpus) if isinstance(corpus, Mapping) else FileCorpus.scan(Path(corpus)),
    )


def _numbers_of(labelled: LabelledTexts) -> IntArray:
    """Return the number of the document with the id of each query, or -1."""
    numbers = {document: number for number, document in enumerate(labelled.corpus.ids)}
    return np.array([numbers.get(query, -1) for query in labelled.queries], np.int64)


def _choose(field: str, names: Sequence[str], kind: type[OutputDtype] | type[SearchKind]) -> None:
    for name in names:
        if name not in list(kind):
            raise InvalidConfig(f"`{field}` has {name!r}; it must be one of {', '.join(kind)}.")


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 3]}..."
