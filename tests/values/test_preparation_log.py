"""Whoever watches a command sees the steps of a preparation, and that a long one goes on."""

import logging
import threading

import pytest

from vecmill.values.preparation_log import show_preparation


def test_steps_are_shown_with_signs_of_life_from_the_first_one_on(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("vecmill.quantization.rounding")
    before = threading.active_count(), logging.getLogger("vecmill.quantization").level
    with show_preparation(sign_every_s=0.01):
        assert threading.active_count() == before[0]
        log.info("int8: %d of %d matrices are quantised.", 1, 36)
        shown = ""
        while "still at it" not in shown:
            shown += capsys.readouterr().err
    assert shown.startswith("int8: 1 of 36 matrices are quantised.\n... still at it after 0 s\n")
    log.info("not shown")
    assert "not shown" not in capsys.readouterr().err
    assert (threading.active_count(), logging.getLogger("vecmill.quantization").level) == before


def test_a_model_that_is_prepared_already_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_preparation():
        pass
    assert capsys.readouterr().err == ""
