"""What tests of several engines share."""

import pytest


@pytest.fixture
def without_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantise all layers of models in int8: no search for those to leave out, which takes seconds."""
    monkeypatch.setattr("vecmill.quantization.selection._HOPELESS", 0.0)
    monkeypatch.setattr("vecmill.quantization.calibration._HELD_OUT_TEXTS", 1)  # their loss decides nothing
