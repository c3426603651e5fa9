"""Labelled sets: what is read from manual pages, and the form in which the sets are written."""

from pathlib import Path

from labelled_sets.manual_pages import to_text
from labelled_sets.package_descriptions import NAMES
from labelled_sets.pairs import keep_distinct
from vecmill.evaluation.labelled_files import read_labelled


def test_manual_pages_become_text() -> None:
    source = """.\\" a comment
.PP
The function
.BR getpid (2)
returns the \\fIprocess\\fP ID, which is
.B \\-1
on \\(lqerror\\(rq.
.TP
.I "two words"
'\\" another comment
"""
    assert (
        to_text(source) == 'The function getpid(2) returns the process ID, which is -1 on "error". two words'
    )


def test_pairs_that_are_not_clear_are_left_out(tmp_path: Path) -> None:
    pairs = [("a", "first"), ("b", "second"), ("b", "third"), ("c", "first"), ("d", "fourth"), ("e", "fifth")]
    found = keep_distinct(pairs, 1)
    assert found.documents == ("fourth", "fifth")
    assert len(found.queries) == 1
    found.write(tmp_path)
    labelled = read_labelled(*(tmp_path / name for name in ("queries.jsonl", "qrels.tsv", "corpus.jsonl")))
    right = {"d": "fourth", "e": "fifth"}[labelled.queries["q0"]]
    texts = dict(zip(labelled.corpus.ids, labelled.corpus.texts(), strict=True))
    assert [texts[document] for document in labelled.judgements["q0"]] == [right]


def test_the_debian_packages_are_chosen_once() -> None:
    names = NAMES.read_text("utf-8").split()
    assert len(names) == len(set(names)) == 1_000
