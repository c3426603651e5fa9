"""Labelled texts in the forms of BEIR, MTEB and TREC, and what is said of wrong ones."""

import gzip
import json
from pathlib import Path

import pytest

from vecmill.errors import InvalidCorpus
from vecmill.evaluation.labelled_files import (
    FileCorpus,
    read_judgements,
    read_labelled,
    read_pairs,
    read_queries,
)
from vecmill.evaluation.labelled_texts import LabelledTexts, MemoryCorpus, find_texts


def write(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join([*lines, ""]), "utf-8", newline="")
    return path


def test_beir(tmp_path: Path) -> None:
    queries = write(tmp_path, "queries.jsonl", '{"_id": "q1", "text": "a"}', "", '{"_id": 2, "text": "b"}')
    corpus = write(
        tmp_path,
        "corpus.jsonl",
        '{"_id": "d1", "title": "A title", "text": "and a text", "metadata": {}}',
        '{"_id": "d2", "title": "", "text": "é"}',
        '{"_id": "d3", "text": ""}',
    )
    qrels = write(tmp_path, "test.tsv", "query-id\tcorpus-id\tscore", "q1\td1\t2", "2\td2\t1", "other\td1\t1")
    found = read_labelled(queries, qrels, corpus)
    assert found.queries == {"q1": "a", "2": "b"}
    assert found.judgements == {"q1": {"d1": 2}, "2": {"d2": 1}}
    assert list(found.corpus.texts()) == ["A title and a text", "é", ""]
    assert find_texts(found.corpus, ["d2"]) == {"d2": "é"}


def test_mteb(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    tables = {
        "queries": {"id": ["q1"], "text": ["a"]},
        "corpus": {"id": ["d1"], "title": ["T"], "text": ["b"]},
        "qrels": {"query-id": ["q1"], "corpus-id": ["d1"], "score": [1.0]},
    }
    for name, columns in tables.items():
        parquet.write_table(arrow.table(columns), tmp_path / f"{name}.parquet")
    queries, corpus, qrels = (tmp_path / f"{name}.parquet" for name in tables)
    found = read_labelled(queries, qrels, corpus)
    assert (found.queries, found.judgements) == ({"q1": "a"}, {"q1": {"d1": 1}})
    assert list(found.corpus.texts()) == ["T b"]
    lines = write(tmp_path, "qrels.jsonl", json.dumps({"query-id": "q1", "corpus-id": "d1", "score": 3}))
    assert read_judgements(lines) == {"q1": {"d1": 3}}


def test_tables_with_and_without_names(tmp_path: Path) -> None:
    assert read_queries(write(tmp_path, "a.tsv", '1\tfirst "quoted"', "2\tsecond")) == {
        "1": 'first "quoted"',
        "2": "second",
    }
    named = write(tmp_path, "b.tsv", "id\ttext\ttitle", "1\ta text\tA title")
    assert list(FileCorpus.scan(named).texts()) == ["A title a text"]
    packed = tmp_path / "c.tsv.gz"
    packed.write_bytes(gzip.compress(b"1\tpacked\r\n"))
    assert read_queries(packed) == {"1": "packed"}


def test_the_columns_of_trec(tmp_path: Path) -> None:
    expected = {"q1": {"d1": 1, "d2": 0}, "q2": {"d3": 1}}
    assert read_judgements(write(tmp_path, "a.qrels", "q1 0 d1 1", "q1 Q0 d2 0", "q2 0  d3 1")) == expected
    assert (
        read_judgements(write(tmp_path, "b.txt", "q1\t0\td1\t1", "q1\t0\td2\t0", "q2\t0\td3\t1")) == expected
    )
    assert read_judgements(write(tmp_path, "c.tsv", "q1\td1", "q2\td3")) == {"q1": {"d1": 1}, "q2": {"d3": 1}}


def test_pairs(tmp_path: Path) -> None:
    lines = ("query\ttext", "how\tso", "how\tor so", "why\tso")
    found = read_pairs(write(tmp_path, "pairs.tsv", *lines))
    assert found.queries == {"q2": "how", "q4": "why"}
    assert found.judgements == {"q2": {"d2": 1, "d3": 1}, "q4": {"d2": 1}}
    assert (list(found.corpus.ids), list(found.corpus.texts())) == (["d2", "d3"], ["so", "or so"])


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.jsonl", ('{"_id": "1", "text": "a"}', "{"), "line 2 is not JSON"),
        ("a.jsonl", ('{"text": "a"}',), "line 1 has no id"),
        ("a.jsonl", ('{"_id": "1"}',), "line 1 has no text"),
        ("a.jsonl", ('{"_id": "1", "text": 5}',), "line 1 has no text"),
        ("a.jsonl", ('{"_id": "1", "text": "\\ud800"}',), "line 1 has a character in its text"),
        ("a.jsonl", ('{"_id": "1", "text": "a"}', '{"_id": 1, "text": "b"}'), "line 2 has the id '1' of the"),
        ("a.jsonl", ('{"_id": "1", "text": " "}',), "line 1: the query '1' is empty"),
        ("a.tsv", ("1\ta", "2"), "line 2 must be an id and a text"),
        ("a.csv", ("id;text",), ""),
        ("a.bin", ("",), "the file name extension must be one of"),
    ],
)
def test_a_wrong_file_of_queries_is_named_with_its_line(
    tmp_path: Path, name: str, lines: tuple[str, ...], message: str
) -> None:
    path = write(tmp_path, name, *lines)
    if not message:
        assert read_queries(path) == {}
        return
    with pytest.raises(InvalidCorpus) as raised:
        read_queries(path)
    assert str(path) in raised.value.message
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("q1\td1\t1", "q1\td1\ttwo"), "line 2: the relevance must be a whole number, not 'two'"),
        (("q1\td1\t0.5",), "line 1: the relevance must be a whole number"),
        (("q1\td1\tinf",), "line 1: the relevance must be a whole number"),
        (("q1",), "line 1 must be a query's id, a document's id and a relevance"),
        (("q1 0 d1 1 more",), "it has 5 columns"),
        (("q1\td1\t1", "q1\td1\t2"), "line 2 judges 'd1' for 'q1' a second time, as 2 instead of 1"),
    ],
)
def test_wrong_judgements_are_named_with_their_line(
    tmp_path: Path, lines: tuple[str, ...], message: str
) -> None:
    path = write(tmp_path, "qrels.tsv", *lines)
    with pytest.raises(InvalidCorpus) as raised:
        read_judgements(path)
    assert f"{path}: {message}" in raised.value.message or message in raised.value.message


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"1\tgood\n2\tb\xe4d\n")
    with pytest.raises(InvalidCorpus, match="line 2 is not UTF-8"):
        read_queries(path)


def test_a_corpus_that_changes_meanwhile(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "1\ta", "2\tb")
    corpus = FileCorpus.scan(path)
    write(tmp_path, "a.tsv", "1\ta", "3\tb")
    with pytest.raises(InvalidCorpus, match="line 2 has changed"):
        list(corpus.texts())
    write(tmp_path, "a.tsv", "1\ta")
    with pytest.raises(InvalidCorpus, match="has become shorter"):
        list(corpus.texts())
    with pytest.raises(InvalidCorpus, match="has no document"):
        FileCorpus.scan(write(tmp_path, "b.tsv", ""))


def test_queries_without_a_right_answer_are_left_out() -> None:
    queries, corpus = {"q1": "a", "q2": "b", "q3": "c"}, MemoryCorpus({"d1": "x"})
    found = LabelledTexts.of(queries, {"q1": {"d1": 1, "gone": 2}, "q2": {"d1": 0}}, corpus)
    assert (list(found.queries), found.unanswered, found.missing) == (["q1"], 2, 1)


def test_files_that_do_not_belong_together() -> None:
    corpus = MemoryCorpus({"d1": "x"})
    with pytest.raises(InvalidCorpus, match="queries is 'q1', and one of the judgements 'Q1'"):
        LabelledTexts.of({"q1": "a"}, {"Q1": {"d1": 1}}, corpus)
    with pytest.raises(InvalidCorpus, match="judgements is 'D1', and one of the corpus 'd1'"):
        LabelledTexts.of({"q1": "a"}, {"q1": {"D1": 1}}, corpus)
