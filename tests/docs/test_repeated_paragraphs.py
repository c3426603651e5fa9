"""The docs stay short, and say each thing on one page."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from support.source_tree import ROOT

# What a user reads: not how vecmill is developed, its decisions, and figures that programs write.
DEVELOPED = ROOT / "docs/contributing.md"
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("*.md")} - {DEVELOPED})]
MOST_PAGES, MOST_WORDS = 28, 59_500
# Two pages that share so many words in a row say the same.
SHARED_WORDS = 20


def prose_of(page: Path) -> Iterator[list[str]]:
    """Yield the words of each paragraph and each cell of a page, without programs and addresses."""
    text = re.sub(r"```.*?```|<!--.*?-->", "\n\n", page.read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for part in re.split(r"\n\s*\n|\n(?=[-|#\d])|\|", text):
        yield re.findall(r"[\w'-]+", part.lower())


def shingles_of(page: Path) -> set[tuple[str, ...]]:
    return {
        tuple(words[at : at + SHARED_WORDS])
        for words in prose_of(page)
        for at in range(len(words) - SHARED_WORDS + 1)
    }


def test_no_two_pages_say_the_same() -> None:
    shingles = {page.name: shingles_of(page) for page in PAGES}
    shared = {
        (one, other): " ".join(min(found))
        for one, other in combinations(shingles, 2)
        if (found := shingles[one] & shingles[other])
    }
    assert shared == {}


def test_there_are_few_pages_of_few_words() -> None:
    words = {page.name: len(page.read_text("utf-8").split()) for page in PAGES[1:]}
    print(words)
    assert len(words) <= MOST_PAGES
    assert sum(words.values()) <= MOST_WORDS
