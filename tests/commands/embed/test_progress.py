"""The bar says how fast it goes and how long it will take."""

import io
import sys
from collections.abc import Iterator

import pytest

from vecmill.commands.embed.progress import ProgressBar, show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ticking(*times: float) -> Iterator[float]:
    return iter(times)


def test_a_terminal_sees_texts_tokens_and_the_time_left() -> None:
    file = Terminal()
    times = ticking(100.0, 110.0)
    with ProgressBar(2_000, file=file, clock=lambda: next(times)) as bar:
        bar.add_embedded(1_000, 50_000)
        bar._bar.refresh()
    shown = file.getvalue()
    assert "1,000/2,000 texts" in shown
    assert "texts/s" in shown
    assert "5,000 tokens/s" in shown
    assert "left" in shown


def test_a_log_gets_a_plain_line_a_minute() -> None:
    file = io.StringIO()
    times = ticking(100.0, 159.0, 161.0, 219.0, 221.0)
    with ProgressBar(30_000, file=file, clock=lambda: next(times)) as bar:
        bar.add_existing(20_000)
        for _ in range(4):
            bar.add_embedded(1_000, 5_000)
    assert file.getvalue() == (
        "73% 22,000/30,000 texts, 32.8 texts/s, 164 tokens/s, 04:04 left\n"
        "80% 24,000/30,000 texts, 33.1 texts/s, 165 tokens/s, 03:01 left\n"
    )


def test_a_run_on_many_machines_gets_a_line_every_ten_seconds() -> None:
    file = io.StringIO()
    times = ticking(100.0, 109.0, 110.0, 119.0, 121.0)
    with ProgressBar(4_000, file=file, clock=lambda: next(times), line_every_s=10.0) as bar:
        for _ in range(4):
            bar.add_embedded(1_000, 5_000)
    assert [line.split()[0] for line in file.getvalue().splitlines()] == ["50%", "100%"]


def test_steps_are_counted_for_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for file in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", file)
        assert list(show_progress(range(100), "Reading")) == list(range(100))
        shown.append(file.getvalue())
    assert "Reading" in shown[0]
    assert shown[1] == ""


def test_the_summary_counts_what_this_run_has_done() -> None:
    times = ticking(100.0, 104.0, 110.0)
    with ProgressBar(3_000, file=io.StringIO(), clock=lambda: next(times)) as bar:
        bar.add_existing(2_000)
        bar.add_embedded(500, 5_000)
        bar.add_embedded(500, 5_000)
    assert bar.summary() == (
        "1,000 texts were embedded in 10.0 s (100.0 texts/s, 1,000 tokens/s), and 2,000 in an earlier run."
    )


def test_what_was_there_already_does_not_shorten_the_time_left() -> None:
    with ProgressBar(2 * 10**9, file=Terminal()) as bar:
        bar._bar.mininterval = 0
        bar.add_existing(10**9)
        bar.add_embedded(1, 1)
        assert bar._bar.format_dict["rate"] < 10**7


def test_what_was_there_already_is_no_speed() -> None:
    with ProgressBar(10, file=io.StringIO(), clock=lambda: 5.0) as bar:
        bar.add_existing(10)
    assert bar.summary() == "0 texts were embedded in 0.0 s, and 10 in an earlier run."
