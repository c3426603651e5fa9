"""Every promise has a test, every test names promises that there are, and the page lists both as they are."""

from collections.abc import Sequence

import pytest

from pages.promise_page import PAGE, KeptBy, find_marked, read_marks, written_page
from pages.promises import GROUPS, PROMISES, Promise

TEXT = """
import pytest
SIZES = [1, pytest.param(2, marks=pytest.mark.full)]

@pytest.mark.promise("answered-once", "no-leak")
def test_small() -> None: ...

@pytest.mark.full
@pytest.mark.promise("no-leak")
async def test_large() -> None: ...

@pytest.mark.promise("nonsense")
@pytest.mark.parametrize("size", SIZES)
def test_both(size: int) -> None: ...

def test_none() -> None: ...
"""


def faults(marked: Sequence[KeptBy]) -> list[str]:
    """What is wrong with the marks of tests."""
    kept = {slug for test in marked for slug in test.slugs}
    small = {slug for test in marked if test.is_small for slug in test.slugs}
    return [
        *(f"no test names the promise {slug}" for slug in PROMISES if slug not in kept),
        *(f"{slug} has tests at full size only" for slug in PROMISES if slug in kept - small),
        *(f"{test.path}: {test.name} names {slug}, which is no promise"
          for test in marked for slug in test.slugs if slug not in PROMISES),
    ]  # fmt: skip


def test_every_promise_has_a_test_and_every_test_names_a_promise() -> None:
    assert faults(find_marked()) == []


def test_a_promise_without_a_test_and_an_unknown_promise_are_found() -> None:
    marked = find_marked()
    without = [test for test in marked if "answered-once" not in test.slugs]
    assert "no test names the promise answered-once" in faults(without)
    unknown = KeptBy("tests/test_x.py", "test_x", ("nonsense",))
    assert faults([*marked, unknown]) == ["tests/test_x.py: test_x names nonsense, which is no promise"]
    large = KeptBy("tests/test_x.py", "test_x", ("answered-once",), is_small=False, is_full=True)
    assert "answered-once has tests at full size only" in faults([*without, large])


def test_marks_are_read_with_their_sizes() -> None:
    assert list(read_marks("tests/test_x.py", TEXT)) == [
        KeptBy("tests/test_x.py", "test_small", ("answered-once", "no-leak")),
        KeptBy("tests/test_x.py", "test_large", ("no-leak",), is_small=False, is_full=True),
        KeptBy("tests/test_x.py", "test_both", ("nonsense",), is_full=True),
    ]
    shared = 'import pytest\npytestmark = [pytest.mark.promise("no-leak"), pytest.mark.full]\nTestX = X\n'
    assert list(read_marks("tests/test_x.py", shared)) == [
        KeptBy("tests/test_x.py", "test_x", ("no-leak",), is_small=False, is_full=True)
    ]


def test_no_promise_stands_twice() -> None:
    assert len(PROMISES) == sum(map(len, GROUPS.values()))


def test_the_page_lists_promises_and_tests_as_they_are() -> None:
    assert PAGE.read_text("utf-8") == written_page(), "run `make promises`"


@pytest.mark.parametrize("promise", PROMISES.values(), ids=lambda promise: promise.slug)
def test_a_promise_is_a_sentence_with_a_figure(promise: Promise) -> None:
    assert promise.sentence.endswith(".")
    assert promise.figure.endswith(".")
