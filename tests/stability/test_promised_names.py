"""What version 1 promises to keep is there, and nothing is added to it by accident."""

import pytest

from stability.promised_names import LISTS, find_names, read_names
from support.source_tree import ROOT


@pytest.mark.parametrize("name", LISTS)
def test_everything_that_is_promised_is_there(name: str) -> None:
    missing = set(read_names(name)) - set(find_names(name))
    assert not missing, f"{name} that were promised are gone. Bring them back, or wait for version 2."


@pytest.mark.parametrize("name", LISTS)
def test_what_is_added_is_promised_on_purpose(name: str) -> None:
    added = set(find_names(name)) - set(read_names(name))
    assert not added, f"{name} are new. If they shall stay for all of version 1: make stability"


@pytest.mark.parametrize("name", LISTS)
def test_the_lists_are_not_empty_and_sorted(name: str) -> None:
    promised = read_names(name)
    assert len(promised) >= 4
    assert promised == sorted(set(promised))


def test_the_page_names_every_list() -> None:
    page = (ROOT / "docs/stability.md").read_text("utf-8")
    for name in LISTS:
        assert f"tests/stability/promised/{name}.json" in page
