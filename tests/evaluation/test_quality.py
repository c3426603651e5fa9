"""The evaluation of models: its figures against plain computations, and what it refuses."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from support.drawn_labels import Labels
from support.http_server import QUIET, serve_in_thread
from support.tiny_models import save_tiny_bert
from vecmill import EmbedSparse, MissingExtra, Purpose, SyncMill, TextOptions
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.evaluation import quality
from vecmill.evaluation.quality import evaluate
from vecmill.evaluation.quality_rows import QualityRow
from vecmill.evaluation.retrieval_measures import NDCG
from vecmill.models import Task
from vecmill.values.aliases import FloatArray
from vecmill.vectors import quantize

DIM = 48

MillOf = Callable[[Task | None], SyncMill]


def draw_vectors(texts: Sequence[str], side: str) -> FloatArray:
    """Vectors that depend on the text alone."""
    rows = [np.random.default_rng(list(text.encode())).standard_normal(DIM, np.float32) for text in texts]
    return np.stack(rows)


def ndcg_of(scores: Mapping[str, float], judged: Mapping[str, int]) -> float:
    """nDCG@10 of a query, by scores of all documents; the greater id goes first."""
    ranked = sorted(scores, key=lambda document: (np.float32(scores[document]), document), reverse=True)

    def discount(gains: Sequence[int]) -> float:
        return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:10]))

    found = discount([judged.get(document, 0) for document in ranked])
    return found / discount(sorted(judged.values(), reverse=True))


def expected_ndcg(labels: Labels, score: Callable[[str, list[str]], Sequence[float]]) -> list[float]:
    """nDCG@10 of each query, if `score` returns the scores of all documents."""
    queries, judgements, corpus = labels
    return [
        ndcg_of(dict(zip(corpus, score(text, list(corpus.values())), strict=True)), judgements[query])
        for query, text in queries.items()
    ]


def values_of(row: QualityRow) -> list[float]:
    found: list[float] = row.values[NDCG].tolist()
    return found


def score_plainly(query: FloatArray, documents: FloatArray, dtype: str) -> list[float]:
    """The scores of all documents in a form, from vectors (dim,) and (documents, dim)."""
    if dtype == "float":
        ours, theirs = query.astype(np.float64), documents.astype(np.float64)
        scores = (theirs / np.linalg.norm(theirs, axis=1, keepdims=True)) @ (ours / np.linalg.norm(ours))
    elif dtype == "ubinary":
        scores = -((documents > 0) != (query > 0)).sum(axis=1).astype(np.float64)
    else:
        ranges = np.stack([documents.min(axis=0), documents.max(axis=0)])
        levels = [quantize(each, dtype, ranges).astype(np.float64) for each in (query[None], documents)]
        scores = (levels[1] @ levels[0][0]) / np.linalg.norm(levels[1], axis=1)
    found: list[float] = scores.tolist()
    return found


def test_every_form_equals_a_plain_computation(labels: Labels) -> None:
    dtypes = ["float", "int8", "ubinary"]
    report = evaluate(draw_vectors, *labels, dimensions=[16], dtypes=dtypes, recall_at=[5, 20])
    assert [row.bytes_per_text for row in report.rows] == [4 * DIM, DIM, DIM / 8, 64, 16, 2]
    for row in report.rows:
        form = row.retriever.form
        dim = form.dimensions or DIM

        def score(query: str, texts: list[str], dim: int = dim, dtype: str = form.dtype) -> list[float]:
            vectors = [draw_vectors(each, "")[:, :dim] for each in ([query], texts)]
            return score_plainly(vectors[0][0], vectors[1], dtype)

        assert values_of(row) == pytest.approx(expected_ndcg(labels, score), abs=1e-9)


@pytest.mark.parametrize(
    ("task", "search"),
    [
        (Task.EMBED, "dense"),
        (Task.SPARSE, "sparse"),
        (Task.MULTI_VECTOR, "multi-vector"),
        (None, "hybrid"),
    ],
)
def test_each_search_ranks_as_the_model_scores(
    task: Task | None, search: str, labels: Labels, mill_of: MillOf
) -> None:
    """A rerank of the whole corpus is the reference."""
    mill = mill_of(task)
    report = evaluate(mill, *labels, searches=[search])
    options = TextOptions(purpose=Purpose.QUERY)

    def score(query: str, documents: list[str]) -> Sequence[float]:
        found: list[float] = mill.rerank(query, documents, options=options).scores.tolist()
        return found

    assert [row.retriever.search for row in report.rows] == [search]
    assert values_of(report.rows[0]) == pytest.approx(expected_ndcg(labels, score), abs=1e-9)


def test_the_outputs_of_one_pass_and_their_bytes(labels: Labels, mill_of: MillOf) -> None:
    mill = mill_of(None)
    report = evaluate(mill, *labels, searches=["dense", "sparse", "multi-vector", "hybrid"])
    sizes = {row.retriever.search.value: row.bytes_per_text for row in report.rows}
    assert sizes["dense"] == 4 * 8
    weights = mill.run(EmbedSparse(tuple(labels[2].values()))).embeddings
    assert sizes["sparse"] == pytest.approx(np.mean([8 * len(one.columns) for one in weights]))
    assert sizes["hybrid"] == pytest.approx(sizes["dense"] + sizes["sparse"] + sizes["multi-vector"])


def test_the_usual_search_is_that_of_the_task(labels: Labels, mill_of: MillOf) -> None:
    found = [evaluate(mill_of(task), *labels).rows[0].retriever.search for task in (Task.SPARSE, None)]
    assert found == ["sparse", "dense"]


def test_a_reranker_orders_the_first_documents(labels: Labels, mill_of: MillOf) -> None:
    reranker = mill_of(Task.RERANK)
    plain, reranked = evaluate(draw_vectors, *labels, reranker=reranker, rerank_top=15).rows
    assert reranked.retriever.reranker == "model/rerank"
    documents = draw_vectors(list(labels[2].values()), "")
    unit = documents / np.linalg.norm(documents, axis=1, keepdims=True)

    def score(query: str, texts: list[str]) -> Sequence[float]:
        cosines = (unit.astype(np.float64) * draw_vectors([query], "")[0]).sum(axis=1)
        ids = list(labels[2])
        order = sorted(range(len(ids)), key=lambda at: (np.float32(cosines[at]), ids[at]), reverse=True)
        scores = np.full(len(ids), -1.0)
        scores[order[:15]] = reranker.rerank(query, [texts[at] for at in order[:15]]).scores
        return scores.tolist()

    assert values_of(reranked) == pytest.approx(expected_ndcg(labels, score), abs=1e-9)
    assert values_of(reranked) != values_of(plain)
    assert reranked.p_value is not None


def test_a_server_gives_the_figures_of_its_model(labels: Labels) -> None:
    with serve_in_thread(QUIET) as server:
        address = str(server.client.base_url)
        remote = evaluate(address, *labels).rows[0]
        named = evaluate(f"{address}#all-MiniLM-L6-v2", *labels, prompts=["none"]).rows[0]
    local = evaluate("sentence-transformers/all-MiniLM-L6-v2", *labels, plans=["fake"]).rows[0]
    assert values_of(remote) == values_of(named) == values_of(local)
    assert remote.retriever.model.endswith(f"at {address}")


def test_prompts_and_plans_make_rows(labels: Labels, tmp_path: Path) -> None:
    model = save_tiny_bert(tmp_path / "tiny")
    rows = evaluate(model, *labels, prompts=["purpose", ":"], plans=["onnx:fp32", "fake"]).rows
    names = [(row.retriever.prompts, row.retriever.plan) for row in rows]
    assert names == [(prompts, plan) for prompts in ("purpose", ":") for plan in ("onnx fp32", "fake exact")]
    assert [row.cosine_min is None for row in rows] == [True, False, True, False]
    assert all(row.cosine_min < 0.9 for row in rows if row.cosine_min is not None)  # drawn vectors


def test_stored_vectors_are_searched_instead_of_embedded(labels: Labels, tmp_path: Path) -> None:
    asked: list[str] = []

    def embed(texts: Sequence[str], side: str) -> FloatArray:
        asked.append(side)
        return draw_vectors(texts, side)

    ids = list(reversed(labels[2]))
    rows = draw_vectors([labels[2][each] for each in ids], "")
    table = pa.table({"_id": ids, "embedding": pa.array(rows.tolist(), pa.list_(pa.float32()))})
    file = tmp_path / "vectors.parquet"
    parquet.write_table(table, file)
    found = evaluate(embed, *labels, document_vectors=file).rows[0]
    assert asked == ["query"]
    assert values_of(found) == values_of(evaluate(draw_vectors, *labels).rows[0])
    assert found.texts_per_s is None
    for metadata in ("[1]", "{", '{"space": 5}'):  # of another program
        parquet.write_table(table.replace_schema_metadata({"vecmill": metadata}), file)
        assert values_of(evaluate(embed, *labels, document_vectors=file).rows[0]) == values_of(found)
    parquet.write_table(table.replace_schema_metadata({"vecmill": '{"chunking": {}}'}), file)
    with pytest.raises(InvalidConfig, match="are those of chunks"):
        evaluate(embed, *labels, document_vectors=file)
    parquet.write_table(pa.concat_tables([table, table.slice(3, 1)]), file)
    with pytest.raises(InvalidCorpus, match="several vectors of the document 'd56'"):
        evaluate(embed, *labels, document_vectors=file)
    parquet.write_table(table.slice(1), file)
    with pytest.raises(InvalidCorpus, match="no vector of 1 of the 60 documents, such as 'd59'"):
        evaluate(embed, *labels, document_vectors=file)


def test_stored_vectors_of_another_space_are_refused(labels: Labels, mill_of: MillOf, tmp_path: Path) -> None:
    mill, file = mill_of(Task.EMBED), tmp_path / "vectors.parquet"
    rows = mill.embed(list(labels[2].values()))
    for space in (mill.identity.space, "s1-of-another-model"):
        table = pa.table(
            {"id": list(labels[2]), "embedding": pa.array(rows.tolist(), pa.list_(pa.float32()))}
        )
        told = table.replace_schema_metadata({"vecmill": json.dumps({"space": space, "engine": "fake"})})
        parquet.write_table(told, file)
        if space == mill.identity.space:
            found = evaluate(mill, *labels, document_vectors=file).rows[0]
            assert values_of(found) == values_of(evaluate(mill, *labels).rows[0])
            continue
        with pytest.raises(InvalidConfig, match=f"in the space {space}, and those of model/embed in s1-"):
            evaluate(mill, *labels, document_vectors=file)


def test_the_corpus_may_contain_the_queries(labels: Labels) -> None:
    queries, judgements, corpus = labels
    inside = {**corpus, **queries}
    plain = evaluate(draw_vectors, queries, judgements, inside).rows[0]
    skipped = evaluate(draw_vectors, queries, judgements, inside, skips_same_id=True).rows[0]
    without = evaluate(draw_vectors, queries, judgements, corpus).rows[0]
    assert skipped.ndcg.mean > plain.ndcg.mean
    assert skipped.ndcg.mean <= without.ndcg.mean  # the other queries are still in the corpus


def test_the_worst_queries_say_what_was_found_instead(labels: Labels) -> None:
    row = evaluate(draw_vectors, *labels).rows[0]
    assert len(row.worst) == 10
    assert [one.ndcg for one in row.worst] == sorted(values_of(row))[:10]
    queries, judgements, corpus = labels
    for one in row.worst:
        assert one.text == queries[one.query]
        judged = judgements[one.query]
        assert all(judged[each.document] > 0 for each in one.right)
        for each in (*one.right, *one.found):
            assert " ".join(corpus[each.document].split()).startswith(each.text.removesuffix("..."))
            assert each.text
        assert all(each.document not in judged and each.place is not None for each in one.found)


class _Page(HTMLParser):
    """Counts the elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_reports_are_no_markup_of_the_texts(labels: Labels) -> None:
    queries, judgements, corpus = labels
    hostile = {query: f"<script>alert(1)</script> | `{text}`" for query, text in queries.items()}
    report = evaluate(draw_vectors, hostile, judgements, corpus, dtypes=["float", "int8"])
    page = _Page()
    page.feed(report.html())
    assert "script" not in page.tags
    assert page.tags.count("svg") == 2
    assert page.tags.count("details") == 2
    assert "http" not in report.html().replace("http://www.w3.org/2000/svg", "")
    assert "<script>" not in report.markdown()
    document = json.loads(json.dumps(report.document()))
    assert document["rows"][1]["dtype"] == "int8"
    assert document["rows"][0]["ndcg_by_query"] == values_of(report.rows[0])
    assert report.find_p_value(0, 1) == report.rows[1].p_value


def test_progress_is_told(labels: Labels) -> None:
    told: list[tuple[str, int, int]] = []
    evaluate(draw_vectors, *labels, on_progress=lambda *step: told.append(step))
    assert told[-1] == ("draw_vectors, function: documents", 60, 60)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtypes": ["float16"]}, "`dtypes` has 'float16'"),
        ({"searches": ["bm25"]}, "`searches` has 'bm25'"),
        ({"searches": ["sparse"]}, "cannot be searched by sparse, only by dense"),
        ({"prompts": ["query"]}, "they must be purpose, none, or QUERY:DOCUMENT"),
        ({"plans": ["onnx"]}, "Plans are for models that are loaded here"),
        ({"dimensions": [49]}, "has 48 dimensions, so its vectors cannot have 49"),
        ({"dimensions": [20], "dtypes": ["binary"]}, "need a multiple of 8 dimensions, not 20"),
        ({"recall_at": [0]}, "must be at least 1"),
        ({"pairs": "pairs.tsv"}, "Name queries, qrels and corpus, or only a file of pairs."),
    ],
)
def test_wrong_settings_are_named(labels: Labels, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        evaluate(draw_vectors, *labels, **settings)  # type: ignore[arg-type]  # wrong on purpose
    assert message in raised.value.message


def test_a_function_that_returns_something_else_is_named(labels: Labels) -> None:
    with pytest.raises(InvalidConfig, match=r"returned an array \(1, 4\) for 12 texts"):
        evaluate(lambda texts, side: np.zeros((1, 4)), *labels)


def test_a_reranker_alone_cannot_be_evaluated(labels: Labels, mill_of: MillOf) -> None:
    with pytest.raises(InvalidConfig, match="has the task rerank, and no vectors"):
        evaluate(mill_of(Task.RERANK), *labels)


def test_the_package_of_the_measures_is_asked_for_first(
    labels: Labels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(texts: Sequence[str], side: str) -> FloatArray:
        raise AssertionError("nothing is computed")

    def refuse() -> None:
        raise MissingExtra("vecmill[evaluate]")

    monkeypatch.setattr(quality, "import_measures", refuse)
    with pytest.raises(MissingExtra, match="evaluate"):
        evaluate(embed, *labels)
