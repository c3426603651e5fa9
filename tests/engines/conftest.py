"""What tests of several engines share."""

from collections.abc import Iterator

import pytest

from engines.quick_precisions import quick_precisions


@pytest.fixture
def without_search() -> Iterator[None]:
    """Models in less than fp32 load as `quick_precisions` says."""
    with quick_precisions():
        yield
