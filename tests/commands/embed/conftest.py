"""Parts of few texts, for tests that need several parts."""

import pytest

from vecmill.bulk import records


@pytest.fixture(autouse=True)
def short_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a part have as many texts as `SHORT_PART` of the test's module says, if it says so."""
    if hasattr(request.module, "SHORT_PART"):
        monkeypatch.setattr(records, "PART_TEXTS", request.module.SHORT_PART)
