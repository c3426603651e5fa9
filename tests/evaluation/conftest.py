"""Labelled texts, and mills of every task on the fake engine, whose vectors are hashes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support.described_models import describe_tasks, describe_with_heads
from support.drawn_labels import Labels, draw_labels
from vecmill import MillConfig, SyncMill
from vecmill.models import Task


@pytest.fixture(scope="session")
def labels() -> Labels:
    """Queries, judgements and corpus."""
    return draw_labels()


@pytest.fixture(scope="session")
def mill_of() -> Iterator[Callable[[Task | None], SyncMill]]:
    """A mill for a task; for `None` one with the heads of BGE-M3."""
    mills: dict[Task | None, SyncMill] = {}
    with ExitStack() as stack:

        def find(task: Task | None) -> SyncMill:
            if task not in mills:
                description = describe_with_heads() if task is None else describe_tasks()[task]
                mills[task] = stack.enter_context(SyncMill(description, MillConfig(engine="fake")))
            return mills[task]

        yield find
