"""Whoever watches a command sees the steps of a preparation, and that a long one goes on."""

import io
import logging
import re
import subprocess
import sys
import threading
from contextlib import redirect_stderr

import pytest

from vecmill.values.preparation_log import show_preparation

# Of a test with a busy machine.
PATIENCE_S = 60.0


class Screen(io.StringIO):
    """A standard error on which a test waits for what threads write."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def write(self, text: str) -> int:
        with self._changed:
            self._changed.notify_all()
            return super().write(text)

    def wait_for(self, pattern: str) -> str:
        """Return what is shown as soon as the pattern is in it."""
        with self._changed:
            found = self._changed.wait_for(lambda: re.search(pattern, self.getvalue()), PATIENCE_S)
        assert found, self.getvalue()
        return self.getvalue()


def test_steps_are_shown_with_signs_of_life_from_the_first_one_on() -> None:
    screen = Screen()
    log = logging.getLogger("vecmill.quantization.rounding")
    before = threading.active_count(), logging.getLogger("vecmill.quantization").level
    with redirect_stderr(screen), show_preparation(sign_every_s=0.01):
        assert threading.active_count() == before[0]
        log.info("int8: %d of %d matrices are quantised.", 1, 36)
        shown = screen.wait_for(r"still at it.*\n")
    assert re.match(r"int8: 1 of 36 matrices are quantised.\n\.\.\. still at it after \d+ s\n", shown)
    log.info("not shown")
    assert "not shown" not in screen.getvalue()
    assert (threading.active_count(), logging.getLogger("vecmill.quantization").level) == before


def test_a_model_that_is_prepared_already_says_nothing() -> None:
    with redirect_stderr(Screen()) as screen, show_preparation():
        pass
    assert screen.getvalue() == ""


def test_a_short_preparation_is_not_shown_where_nobody_asked_for_it() -> None:
    screen = Screen()
    log = logging.getLogger("vecmill.verification")
    with redirect_stderr(screen), show_preparation(patience_s=60.0):
        log.info("checked")
        log.warning("cannot be written")
    assert screen.getvalue() == "cannot be written\n"
    with redirect_stderr(screen), show_preparation(patience_s=0.01):
        log.info("Quantising")
        log.info("quantised")
        shown = screen.wait_for("quantised")
    assert shown == "cannot be written\nQuantising\nquantised\n"


WATCHED = """
import logging, sys, threading
from vecmill.values import preparation_log
preparation_log.PATIENCE_S = 0.0
{before}
log = logging.getLogger("vecmill.quantization")
first, second = preparation_log.show_to_watchers(), preparation_log.show_to_watchers()
first.__enter__(), second.__enter__()
log.info("one")
first.__exit__(None, None, None)
log.info("two")
second.__exit__(None, None, None)
log.info("three")
assert log.level == logging.NOTSET and not log.handlers and threading.active_count() == 1
"""
ON_A_TERMINAL = "sys.stderr.isatty = lambda: True"
IN_A_NOTEBOOK = "import builtins; builtins.__IPYTHON__ = True"


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        (ON_A_TERMINAL, "one\ntwo\n"),  # two loads at once are shown once, until the last one ends
        (IN_A_NOTEBOOK, "one\ntwo\n"),
        ("", ""),
        (f"{ON_A_TERMINAL}; logging.basicConfig(stream=sys.stdout)", ""),
        (f'{ON_A_TERMINAL}; logging.getLogger("vecmill").addHandler(logging.NullHandler())', ""),
    ],
)
def test_a_program_shows_a_load_to_a_person_unless_it_logs_itself(before: str, shown: str) -> None:
    program = WATCHED.format(before=before)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == shown
