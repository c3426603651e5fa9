"""Mills over tiny models on the ONNX engine, and texts that are short, long and too long."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.texts import mixed_texts
from vecmill import MillConfig, SyncMill
from vecmill.models import ModelDescription

Open = Callable[[Path | ModelDescription], SyncMill]

# "x" alone, and texts longer than the models read.
TEXTS = ["x", "", "in the [SEP] end", *mixed_texts(5, 12), "the one " * 60]
PAIRS = [
    ("the", "x"),
    ("", "the"),
    ("the", ""),
    ("what is it", "the one " * 60),
    ("which one " * 60, "this"),
    ("which one is it " * 30, "the one " * 60),
    ("short", "of it " * 19),
    *zip(mixed_texts(6, 12), mixed_texts(7, 12), strict=True),
]


@pytest.fixture(scope="module")
def open_mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    cache_dir = tmp_path_factory.mktemp("prepared")
    with ExitStack() as stack:
        yield lambda model: stack.enter_context(SyncMill(model, MillConfig(cache_dir=cache_dir)))
