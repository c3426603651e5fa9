"""No figure contradicts another: those of the view Watch, of `/metrics`, of the log, and what clients see."""

import logging
import re
import time
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from console.page_modules import call
from monitoring.faults import SlowEngine
from support.http_server import MODEL, QUIET, embedded_model, serve_in_thread, wait_until
from support.tiny_models import save_tiny_bert
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill_server.telemetry.logs import ACCESS_LOG

TINY = "tiny"
LOAD_S, CLIENTS, CALL_S = 1.5, 6, 0.02
SECONDS = 4.0  # by which counts are divided; any time will do


class Seen:
    """What the clients of a load saw: for each answer its model, status, texts, and seconds."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int, int, float]] = []

    def send(self, url: str, number: int, until: float) -> None:
        model = (MODEL, TINY)[number % 2]
        with httpx.Client(base_url=url, timeout=60) as client:
            place = 0
            while time.monotonic() < until:
                place += 1
                texts = [f"client {number}, text {place} {part} " + "word " * 20 for part in range(3)]
                wrong = place % 7 == 0
                began = time.monotonic()
                body = {"model": model, "input": [] if wrong else texts}
                status = client.post("/v1/embeddings", json=body).status_code
                self.answers.append((model, status, 0 if wrong else 3, time.monotonic() - began))


class Lines(logging.Handler):
    """The fields of the lines of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(vars(record))

    def of(self, route: str) -> list[dict[str, Any]]:
        return [line for line in self.found if line["route"] == route]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A load on two models: what clients saw, the pages of the metrics, and the lines of the log."""
    tiny = save_tiny_bert(tmp_path_factory.mktemp("figures") / TINY)
    models = [embedded_model(), describe_model(locate_model(str(tiny)))]
    seen, pages, lines = Seen(), [], Lines()
    log = logging.getLogger(ACCESS_LOG)
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    settings = replace(QUIET, access_log=True)
    with serve_in_thread(
        settings, models=models, engine=SlowEngine(CALL_S), config=MillConfig(cores=1)
    ) as server:
        url = str(server.client.base_url)
        pages.append(read_page(url))
        until = time.monotonic() + LOAD_S
        with ThreadPoolExecutor(CLIENTS) as pool:
            sent = [pool.submit(seen.send, url, number, until) for number in range(CLIENTS)]
            while time.monotonic() < until:
                time.sleep(0.1)
                pages.append(read_page(url))
            for one in sent:
                one.result()
        # A request is counted after its answer is sent, and then it gets its line.
        wait_until(lambda: len(lines.of("embeddings")) == len(seen.answers))
        pages.append(read_page(url))
    log.removeHandler(lines)
    log.setLevel(logging.NOTSET)
    return seen, pages, lines.of("embeddings")


def read_page(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=30).text


def families_of(page: str) -> list[Metric]:
    return list(text_string_to_metric_families(page))


def read_loads(pages: list[str]) -> Any:
    """The load of the server and of each model as the view Watch computes it, and its two sentences."""

    def read(model: str | None) -> Any:
        return call("here", "readLoad", pages[0], pages[-1], SECONDS, model, pages[1:])

    server, models = read(None), {name: read(name) for name in (MODEL, TINY)}
    parts = call("load.js", "explainParts", server, list(models.items()), "")
    return {"server": server, "models": models, "sentence": server["sentence"], "parts": parts}


def values(page: str, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for family in families_of(page)
        for sample in family.samples
        if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items())
    )


def grown(pages: list[str], name: str, **labels: str) -> float:
    return values(pages[-1], name, **labels) - values(pages[0], name, **labels)


def test_requests_and_texts_are_the_same_everywhere(load: Any) -> None:
    seen, pages, lines = load
    found = read_loads(pages)["server"]
    for status in (200, 400):
        answered = sum(each[1] == status for each in seen.answers)
        assert answered > 0
        assert answered == sum(line["status"] == status for line in lines)
        assert answered == grown(pages, "vecmill_http_requests_total", route="embeddings", status=str(status))
    good = sum(each[1] == 200 for each in seen.answers)
    assert found["answered"] * SECONDS == pytest.approx(good)
    assert found["failed"] * SECONDS == pytest.approx(len(seen.answers) - good)
    texts = sum(each[2] for each in seen.answers)
    assert texts == sum(line["texts"] for line in lines)
    assert found["texts"] * SECONDS == pytest.approx(texts)
    assert texts == grown(pages, "vecmill_texts_finished_total", outcome="done")
    tokens = sum(line["tokens"] for line in lines)
    assert found["tokens"] * SECONDS == pytest.approx(tokens)
    assert found["callTokens"] == pytest.approx(tokens / grown(pages, "vecmill_inference_seconds_count"))


def test_the_models_add_up_to_the_server(load: Any) -> None:
    seen, pages, _ = load
    found = read_loads(pages)
    server, models = found["server"], found["models"]
    assert min(server["queueTexts"], server["queueSeconds"]) > 0
    for name in ("texts", "tokens", "queueTexts", "queueSeconds"):
        assert server[name] == pytest.approx(sum(each[name] for each in models.values())), name
    for name, each in models.items():
        assert each["texts"] * SECONDS == pytest.approx(sum(one[2] for one in seen.answers if one[0] == name))
        assert each["answered"] == server["answered"]  # which is of the whole server
        assert f"{name} " in found["parts"]
    shares = [float(share) for share in re.findall(r"([\d.]+)%", found["parts"])]
    assert sum(shares) == pytest.approx(100, abs=1)


def test_times_are_those_that_were_measured(load: Any) -> None:
    seen, pages, lines = load
    found = read_loads(pages)["server"]
    families = {family.name: family for family in families_of(pages[-1])}
    bounds = sorted(
        {
            float(sample.labels["le"])
            for sample in families["vecmill_http_request_duration_seconds"].samples
            if "le" in sample.labels
        }
    )
    logged = [line["duration_ms"] / 1000 for line in lines]
    for share, shown in zip((0.5, 0.95, 0.99), found["latencies"], strict=True):
        of_log = np.quantile(logged, share, method="inverted_cdf")
        # In the same bucket, or at the bound of two.
        assert abs(bisect_left(bounds, shown) - bisect_left(bounds, of_log)) <= 1, (share, shown, of_log)
    # What clients measure has the way to the server and back.
    assert sum(logged) <= sum(each[3] for each in seen.answers)
    waited = grown(pages, "vecmill_queue_wait_seconds_sum") / grown(pages, "vecmill_queue_wait_seconds_count")
    assert found["meanWait"] == pytest.approx(waited)
    assert found["meanWait"] < np.mean(logged)


def test_the_sentence_says_what_the_figures_say(load: Any) -> None:
    _, pages, _ = load
    found = read_loads(pages)
    server = found["server"]
    calls, lanes = re.search(r"run ([\d.]+) at a time, of at most ([\d.]+)", found["sentence"]).groups()  # type: ignore[union-attr]
    assert float(calls) == pytest.approx(server["running"], abs=0.006)
    assert float(lanes) == server["lanes"]
    assert server["running"] <= server["lanes"]
    assert call("numbers.js", "time", server["queueSeconds"]) in found["sentence"]
    texts = [float(each) for each in re.findall(r"\(([\d.]+) texts?,", found["parts"])]
    assert sum(texts) == pytest.approx(server["queueTexts"], rel=0.02)
