"""Nothing grows under steady load, and what grows is found."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from soak.run import LEAKS, REST_LIMITS, Report, Samples, ServerEnded, SoakConfig, judge, soak
from soak.trend import draw_sparks, find_trend

SMOKE_S = 60.0
SHORT = SoakConfig(2.0, capacity_s=0.5, rest_s=1.5)
LENGTH = 1_800


def series(rule: Callable[[int, random.Random], float]) -> list[float]:
    dice = random.Random(5)
    return [rule(second, dice) for second in range(LENGTH)]


def test_a_steady_series_is_steady_whatever_its_noise() -> None:
    for noise in (0.0, 1.0, 30.0):
        values = series(lambda _, dice, noise=noise: 300 + dice.gauss(0, noise))  # type: ignore[misc]
        assert not find_trend("rss_mb", range(LENGTH), values).is_leak


def test_a_series_that_settles_in_the_first_half_is_steady() -> None:
    values = series(lambda second, dice: 300 + min(second, 600) / 4 + dice.gauss(0, 2))
    assert not find_trend("rss_mb", range(LENGTH), values).is_leak


def test_a_series_that_rises_and_falls_is_steady() -> None:
    values = series(lambda second, dice: 300 + second % 50)
    assert not find_trend("rss_mb", range(LENGTH), values).is_leak


def test_a_staircase_of_new_peaks_is_steady() -> None:
    steps = (100, 300, 640, 820, 950, 1_000, 1_600, 1_670)
    values = series(lambda second, dice: 290 + 3 * sum(second > step for step in steps) + dice.gauss(0, 0.3))
    assert not find_trend("rss_mb", range(LENGTH), values).is_leak


@pytest.mark.promise("no-leak")
def test_a_leak_of_20_mb_an_hour_is_found_among_new_peaks() -> None:
    values = series(lambda second, dice: 290 + second / 180 + 3 * (second > 1_200) + dice.gauss(0, 0.3))
    assert find_trend("rss_mb", range(LENGTH), values).is_leak


@pytest.mark.promise("no-leak")
def test_a_slow_leak_is_found_within_half_an_hour() -> None:
    values = series(lambda second, dice: 300 + second / 30 + dice.gauss(0, 3))
    trend = find_trend("rss_mb", range(LENGTH), values)
    assert trend.is_leak
    assert trend.slope_per_h == pytest.approx(120, rel=0.1)
    assert trend.noise == pytest.approx(3, rel=0.1)


def report_with(name: str, more: float) -> Report:
    """A report of a steady run, after which there is so much more of one thing."""
    samples = Samples()
    for second in range(100):
        samples.add(second, {"rss_mb": 300.0, "fds": 40, "threads": 9, "tasks": 20, "open_texts": 5})
    before = {**samples.latest, "open_texts": 0.0}
    return Report(10.0, samples, Counter({"200": 9}), before, {**before, name: before[name] + more})


@pytest.mark.parametrize(("name", "limit"), REST_LIMITS.items())
def test_what_is_left_after_the_load_is_found(name: str, limit: int) -> None:
    assert report_with(name, limit).leaks == []
    assert report_with(name, limit + 1).leaks == [name]


def test_sparks_have_the_shape_of_the_series() -> None:
    assert draw_sparks([0.0] * 10 + [7.0] * 10, width=4) == "▁▁██"
    assert draw_sparks([3.0] * 5) == "▁▁▁▁▁"


@pytest.mark.parametrize(("leak", "grows"), LEAKS.items())
def test_a_planted_leak_has_to_be_found_in_its_own_series(leak: str, grows: str) -> None:
    steady, other = report_with("fds", 0), report_with("threads", 9)
    assert (judge(steady, "none"), judge(other, "none")) == (0, 1)
    assert (judge(steady, leak), judge(other, leak)) == (1, 1)
    if grows in REST_LIMITS:
        assert judge(report_with(grows, 9), leak) == 0


@pytest.mark.linux
@pytest.mark.promise("no-leak")
def test_nothing_is_left_behind_by_a_short_load() -> None:
    report = asyncio.run(soak(SHORT))
    print(report.before, report.after, report.ends)
    assert report.ends["200"] > 10
    assert report.left_behind == []


def test_a_server_that_ends_is_no_steady_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = tmp_path / "tests/soak/soaked_server.py"
    server.parent.mkdir(parents=True)
    server.write_text("import time; print('ready', flush=True); time.sleep(0.2); raise SystemExit(3)")
    monkeypatch.setattr("soak.run.ROOT", tmp_path)
    with pytest.raises(ServerEnded, match="status 3"):
        asyncio.run(soak(SHORT))


def run(leak: str) -> Report:
    report = asyncio.run(soak(SoakConfig(SMOKE_S, leak)))
    print("\n".join(report.lines()))
    assert not report.was_busy, "the machine is too busy to tell"
    return report


@pytest.mark.full
@pytest.mark.promise("no-leak")
def test_nothing_grows_in_a_minute() -> None:
    assert run("none").leaks == []


@pytest.mark.full
@pytest.mark.parametrize(("leak", "grows"), LEAKS.items())
def test_a_planted_leak_is_found_in_a_minute(leak: str, grows: str) -> None:
    assert grows in run(leak).leaks
