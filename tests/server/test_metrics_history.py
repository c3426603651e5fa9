"""The history of the metrics: what a page that is opened later can still show."""

import asyncio
import json
from collections.abc import Callable

import pytest

from console.page_modules import ASSETS
from support.http_server import serve_in_thread
from vecmill_server.telemetry.metrics.history import EVERY_S, KEPT_S, SERIES, MetricsHistory


class PageOfMetrics:
    """A page whose counters are set by hand."""

    def __init__(self) -> None:
        self.answered = 0
        self.reads = 0
        self.more = ""

    async def read(self) -> bytes:
        self.reads += 1
        return (
            f'vecmill_http_requests_total{{route="embeddings",status="200"}} {self.answered}\n'
            "process_resident_memory_bytes 5\n"
            f"vecmill_build_info 1\n{self.more}"
        ).encode()


async def settle(history: MetricsHistory) -> list[dict[str, object]]:
    """What the history holds when its reading is done."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
    found: list[dict[str, object]] = json.loads(await history.write())
    return found


def with_history(test: Callable[[MetricsHistory, PageOfMetrics, list[float]], object]) -> None:
    now = [100.0]
    page, history = PageOfMetrics(), MetricsHistory(lambda: now[0])
    history.read_from(page.read)
    asyncio.run(test(history, page, now))  # type: ignore[arg-type]


def test_requests_make_a_reading_every_few_seconds_and_only_changes_are_kept() -> None:
    async def test(history: MetricsHistory, page: PageOfMetrics, now: list[float]) -> None:
        for answered in range(3):
            page.answered = answered // 2
            for _ in range(50):
                history.touch()
            await settle(history)
            now[0] += EVERY_S
        assert page.reads == 3
        found = await settle(history)
        counter = 'vecmill_http_requests_total{route="embeddings",status="200"}'
        assert found == [
            {"age_s": 3 * EVERY_S, "metrics": f"{counter} 0\nprocess_resident_memory_bytes 5"},
            {"age_s": 2 * EVERY_S, "metrics": ""},
            {"age_s": EVERY_S, "metrics": f"{counter} 1"},
        ]

    with_history(test)


def test_a_series_that_a_page_has_no_more_is_told_once() -> None:
    async def test(history: MetricsHistory, page: PageOfMetrics, now: list[float]) -> None:
        series = 'vecmill_queue_texts{model="unloaded"}'
        for page.more in (f"{series} 3\n", "", "", f"{series} 0\n"):
            history.touch()
            await settle(history)
            now[0] += EVERY_S
        found = [str(each["metrics"]) for each in await settle(history)]
        assert f"{series} 3" in found[0]
        assert found[1:] == [f"{series} gone", "", f"{series} 0"]

    with_history(test)


def test_the_oldest_reading_is_whole_after_others_were_dropped() -> None:
    async def test(history: MetricsHistory, page: PageOfMetrics, now: list[float]) -> None:
        for answered in range(int(KEPT_S / EVERY_S) + 20):
            page.answered = answered
            history.touch()
            await settle(history)
            now[0] += EVERY_S
        first, *others = await settle(history)
        assert "process_resident_memory_bytes 5" in str(first["metrics"])
        assert len(others) <= KEPT_S / EVERY_S + 1
        assert f'status="200"}} {page.answered - len(others)}\n' in str(first["metrics"])
        assert all("process_resident_memory_bytes" not in str(each["metrics"]) for each in others)

    with_history(test)


def test_a_reading_that_takes_long_is_not_overtaken() -> None:
    async def test(history: MetricsHistory, page: PageOfMetrics, now: list[float]) -> None:
        go_on = asyncio.Event()

        async def wait() -> bytes:
            found = await page.read()
            await go_on.wait()
            return found

        history.read_from(wait)
        for _ in range(3):
            history.touch()
            await asyncio.sleep(0)
            now[0] += EVERY_S
        assert page.reads == 1
        go_on.set()
        assert len(await settle(history)) == 1
        history.touch()
        assert len(await settle(history)) == 2

    with_history(test)


def test_a_page_that_is_scraped_is_kept_and_not_read_again() -> None:
    async def test(history: MetricsHistory, page: PageOfMetrics, now: list[float]) -> None:
        for scrapes in range(1, 4):
            scraped = await history.observe(page.read)
            assert b"vecmill_build_info 1" in scraped
            history.touch()
            assert page.reads == scrapes
            assert len(await settle(history)) == scrapes
            now[0] += EVERY_S

    with_history(test)


def test_a_scrape_that_is_given_up_is_kept_and_one_that_fails_tells_its_error() -> None:
    async def test(history: MetricsHistory, page: PageOfMetrics, now: list[float]) -> None:
        async def fail() -> bytes:
            raise OSError("no page")

        scrape = asyncio.ensure_future(history.observe(page.read))
        await asyncio.sleep(0)
        scrape.cancel()
        assert len(await settle(history)) == 1
        now[0] += EVERY_S
        with pytest.raises(OSError, match="no page"):
            await history.observe(fail)
        assert len(await settle(history)) == 1

    with_history(test)


def test_nothing_runs_while_nobody_asks() -> None:
    async def test(history: MetricsHistory, page: PageOfMetrics, now: list[float]) -> None:
        now[0] += 10 * KEPT_S
        await asyncio.sleep(0)
        assert page.reads == 0

    with_history(test)


def test_a_page_that_fails_leaves_a_gap_and_no_error() -> None:
    async def test(history: MetricsHistory, page: PageOfMetrics, now: list[float]) -> None:
        async def fail() -> bytes:
            raise OSError("no page")

        history.read_from(fail)
        history.touch()
        assert await settle(history) == []
        history.read_from(page.read)
        now[0] += EVERY_S
        history.touch()
        assert len(await settle(history)) == 1

    with_history(test)


def test_the_history_has_every_series_that_the_page_draws() -> None:
    drawn = (ASSETS / "load.js").read_text("utf-8").split('"')
    names = {word for word in drawn if word.startswith(("vecmill_", "process_"))}
    assert len(names) > 8
    for name in names:
        assert name.startswith(SERIES) or any(series.startswith(name) for series in SERIES), name


def test_a_server_answers_with_its_last_minutes() -> None:
    with serve_in_thread() as server:
        assert server.client.post("/v1/embeddings", json={"input": "a text"}).status_code == 200
        found: list[dict[str, str]] = []
        for _ in range(200):
            found = server.client.get("/console/history.json").json()
            if found:
                break
        assert "vecmill_http_requests_total{" in found[0]["metrics"]


def test_a_flood_of_questions_writes_the_history_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = MetricsHistory.write

    async def note(history: MetricsHistory) -> bytes:
        written.append(1)
        return await write(history)

    monkeypatch.setattr(MetricsHistory, "write", note)
    with serve_in_thread(page_clock=lambda: 0.0) as server:
        for _ in range(20):
            assert server.client.get("/console/history.json").status_code == 200
    assert len(written) == 1
