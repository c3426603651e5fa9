"""What tests of several engines share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.quick_precisions import quick_precisions
from vecmill import MillConfig, SyncMill


@pytest.fixture
def without_search() -> Iterator[None]:
    """Models in less than fp32 load as `quick_precisions` says."""
    with quick_precisions():
        yield


@pytest.fixture
def open_mill(tmp_path: Path) -> Iterator[Callable[[Path], SyncMill]]:
    """Start mills that end with the test."""
    mills: list[SyncMill] = []

    def enter(directory: Path) -> SyncMill:
        mills.append(SyncMill(directory, MillConfig(cache_dir=tmp_path / "cache")))
        return mills[-1]

    yield enter
    for mill in mills:
        mill.close()
