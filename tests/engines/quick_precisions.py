"""Loads models in less than fp32 in a part of the time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def quick_precisions() -> Iterator[None]:
    """Quantise all layers of models in int8: no search for those to leave out, which takes seconds.

    Their inputs are measured over fewer texts, which is enough for the accuracy that the tests ask for.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vecmill.quantization.selection._HOPELESS", 0.0)
        patch.setattr("vecmill.quantization.calibration._TEXTS", 16)
        patch.setattr("vecmill.quantization.calibration._HELD_OUT_TEXTS", 1)  # their loss decides nothing
        yield
