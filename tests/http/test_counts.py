"""The counts of texts on `/metrics` add up at every scrape, while work is under way.

A page is shared by all who ask within `PAGE_AGE_S`.
"""

import threading
from itertools import count, cycle

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.http_server import DIM, HttpServer, serve_in_thread
from vecmill.batching.dispatcher import Dispatcher
from vecmill.engines.fake import FakeEngine, FaultScript
from vecmill_server.app.routes.prometheus import write_text
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics

FORMATS = ("text/plain", "application/openmetrics-text")
OUTCOMES = ("done", "failed", "expired", "cancelled")


def imbalance(page: str) -> float:
    """Admitted texts that are neither finished nor open, on one page of metrics."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = sample.labels.get("outcome", sample.name)
            values[key] = values.get(key, 0.0) + sample.value
    return (
        values["vecmill_texts_admitted_total"]
        - values["vecmill_texts_open"]
        - sum(values[outcome] for outcome in OUTCOMES)
    )


def scrape_under_load(server: HttpServer, requests: int, scrapes: int) -> list[float]:
    """Scrape without a pause while another thread sends requests; return each imbalance.

    The load lasts until at least so many requests are answered and so many pages are read.
    """
    ended, has_scraped = threading.Event(), threading.Event()

    def send() -> None:
        for number in count():
            if number >= requests and has_scraped.is_set():
                break
            timeout = {"x-request-timeout-ms": "1"} if number % 5 == 0 else {}
            body = {"input": [f"{number} {place}" for place in range(8)]}
            server.client.post("/v1/embeddings", json=body, headers=timeout)
        ended.set()

    sender = threading.Thread(target=send)
    sender.start()
    found = []
    formats = cycle(FORMATS)
    try:
        while not ended.is_set():
            found.append(imbalance(server.client.get("/metrics", headers={"accept": next(formats)}).text))
            if len(found) > scrapes:
                has_scraped.set()
    finally:
        has_scraped.set()
        sender.join()
    return found


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(dim=DIM, faults=FaultScript(share=0.1, seed=3))


@pytest.mark.promise("counts-agree")
def test_admitted_texts_are_finished_or_open_at_every_scrape(engine: FakeEngine) -> None:
    with serve_in_thread(engine=engine) as server:
        found = scrape_under_load(server, 40, 10)
    assert len(found) > 10
    assert set(found) == {0}


def test_a_count_from_another_moment_is_noticed(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Dispatcher.counts_snapshot

    def late(self: Dispatcher) -> object:
        counts = snapshot(self)
        object.__setattr__(counts, "open", counts.open + 1)
        return counts

    monkeypatch.setattr(Dispatcher, "counts_snapshot", late)
    with serve_in_thread(engine=engine) as server:
        assert set(scrape_under_load(server, 10, 3)) != {0}


def test_a_page_without_models_has_no_counts() -> None:
    assert b"vecmill_texts_open{" not in write_text(ServerMetrics().copy().families())
