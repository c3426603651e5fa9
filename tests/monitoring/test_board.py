"""Each panel of the board shows data: Prometheus scrapes a live server under load and answers its queries."""

import json
import math
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pages.board import list_panels
from pages.board_option_panels import LOADS
from pages.board_panels import GPUS, ROWS
from pages.monitoring_files import BOARD, RULES
from support.batches import create_batch, ended, request_line
from support.http_server import wait_until
from support.server import MODEL, free_port, live_server
from support.tiny_models import save_tiny_bert

INTERVAL = "500ms"
LOAD_S = 10.0
VARIABLES = {"$job": ".*", "$instance": ".*", "$model": ".*", "$__rate_interval": "8s", "$__range": "1m"}
TINY = "tiny"
# No machine of the tests has a GPU; tests/server/test_gpus.py reads a stand-in for NVML. No disk fails.
WITHOUT_DATA = {LOADS, "Results that were not kept on disk", *(panel.title for panel in ROWS[GPUS])}

pytestmark = pytest.mark.full


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[httpx.Client]:
    """Debian's Prometheus with the alert rules, which scrapes the target; a client of its API."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Debian's package prometheus")
    port = free_port()
    config = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "vecmill", "static_configs": [{"targets": [target]}]}],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config))  # which YAML contains
    line = [program, f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}"]
    line.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "prometheus.log").open("wb") as log:
        running = subprocess.Popen(line, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_until(lambda: is_ready(client))
            yield client
    finally:
        running.terminate()
        running.wait(timeout=30)


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def send_load(url: str, until: float) -> None:
    """Send requests of every kind, good and bad, with the keys of two owners, until a time."""

    def send(key: str) -> None:
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30) as client:
            number = 0
            while time.monotonic() < until:
                number += 1
                text = f"text {number} of {key}"
                client.post("/v1/embeddings", json={"input": [text, text, "word " * 600], "model": MODEL})
                client.post("/v1/embeddings", json={"input": [text], "model": TINY, "unknown_field": 1})
                client.post("/v1/embeddings", json={"input": text, "model": "a name of another server"})
                client.post("/v1/embeddings", json={"input": []})
                client.post("/rerank", json={"query": "a", "documents": ["b"], "model": MODEL})
                client.get("/nowhere")

    threads = [threading.Thread(target=send, args=(key,)) for key in ("key-1", "key-2")]
    for thread in threads:
        thread.start()
    with httpx.Client(base_url=url, headers={"authorization": "Bearer key-1"}, timeout=30) as client:
        lines = [request_line("good", {"input": "a"}), request_line("bad", {"input": 7})]
        while time.monotonic() < until:
            ended(client, create_batch(client, lines))
    for thread in threads:
        thread.join()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The API of a Prometheus that has scraped a server of two models under load."""
    folder = tmp_path_factory.mktemp("monitoring")
    (folder / "keys").write_text("search key-1\ningest key-2\n")
    tiny = save_tiny_bert(folder / TINY)
    arguments = [MODEL, str(tiny), "--alias", "*", "--no-access-log", "--metric-aliases", "vllm"]
    arguments += ["--api-key-file", str(folder / "keys"), "--batch-dir", str(folder / "batches")]
    arguments += ["--result-cache-dir", str(folder / "cached")]
    with (
        live_server(folder, arguments=arguments) as server,
        prometheus(folder, server.url.removeprefix("http://")) as client,
    ):
        send_load(server.url, time.monotonic() + LOAD_S)
        yield client


def ask(api: httpx.Client, expression: str) -> list[float]:
    """The values of an expression now, without those that are no number."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    answer = api.get("/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", answer
    values = [float(series["value"][1]) for series in answer["data"]["result"]]
    return [value for value in values if not math.isnan(value)]


def panels() -> list[Any]:
    board = json.loads(BOARD.read_text("utf-8"))
    return [panel for panel in list_panels(board) if panel["type"] != "row"]


@pytest.mark.promise("alerts-true")
def test_each_panel_shows_data(api: httpx.Client) -> None:
    empty = [
        f"{panel['title']}: {target['expr']}"
        for panel in panels()
        for target in panel["targets"]
        if panel["title"] not in WITHOUT_DATA and not ask(api, target["expr"])
    ]
    assert empty == []


def test_the_figures_of_the_load_are_there(api: httpx.Client) -> None:
    figures = {panel["title"]: ask(api, panel["targets"][0]["expr"]) for panel in panels()}
    for title in ("Requests by route", "Errors by reason", "Tokens by key", "Unknown model names", "Texts"):
        assert max(figures[title]) > 0, title
    assert len(figures["Ready models"]) == 2
    assert set(figures["Ready models"]) == {1.0}
    assert len(figures["Tokens by key"]) == 2


def test_the_names_of_vllm_are_scraped(api: httpx.Client) -> None:
    assert len(ask(api, "vllm:num_requests_waiting")) == 2
    assert len(ask(api, 'vllm:request_success_total{finished_reason="stop"} > 0')) == 2
    assert ask(api, "sum(vllm:prompt_tokens_total)") == ask(api, "sum(vecmill_tokens_total)")


def test_prometheus_evaluates_the_rules(api: httpx.Client) -> None:
    groups = api.get("/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
