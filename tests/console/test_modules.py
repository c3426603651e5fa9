"""What the page computes: similarities, maps and loads are those of numpy and of the metrics."""

import ast
import base64
import csv
import io
import json as json_module
import shlex
import subprocess
from typing import Any

import httpx
import numpy as np
import pytest

from console.page_modules import ASSETS, call
from support.client_packages import NODE
from support.http_server import MODEL, serve_in_thread
from vecmill_server.app import list_routes

SEED = 20_261_125
HOSTILE = 'it\'s "quoted" $(id) `id` \\ é 漢 🎉 </script>\ttab'


@pytest.mark.parametrize("rows", [2, 3, 12])
def test_similarities_and_the_map_are_those_of_numpy(rows: int) -> None:
    values = np.random.default_rng(SEED).normal(size=(rows, 24)).astype("<f4")
    found = call("here", "decodeAndCompare", [base64.b64encode(row.tobytes()).decode() for row in values])
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    np.testing.assert_allclose(found["matrix"], unit @ unit.T, atol=1e-6)
    pairs = [(pair["one"], pair["other"]) for pair in found["pairs"]]
    assert pairs == sorted(pairs, key=lambda pair: -(unit @ unit.T)[pair])
    assert len(pairs) == rows * (rows - 1) // 2
    centred = values - values.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    expected = (u * s)[:, :2]
    points = np.array(found["points"])
    np.testing.assert_allclose(np.abs(points[:, 0]), np.abs(expected[:, 0]), atol=1e-2)
    # The map keeps the distances of the two components, whichever way its axes point.
    np.testing.assert_allclose(
        np.linalg.norm(points[:, None] - points[None], axis=-1),
        np.linalg.norm(expected[:, None] - expected[None], axis=-1),
        atol=0.05,
    )


def test_equal_texts_have_a_map_too() -> None:
    row = base64.b64encode(np.ones(8, "<f4").tobytes()).decode()
    found = call("here", "decodeAndCompare", [row, row, row])
    assert found["points"] == [[0, 0]] * 3


def test_the_load_is_what_happened_between_two_readings_of_the_metrics() -> None:
    with serve_in_thread() as server:
        before = server.client.get("/metrics").text
        for number in range(10):
            answer = server.client.post("/v1/embeddings", json={"input": [f"text {number}", "other"]})
            assert answer.status_code == 200
        assert server.client.post("/v1/embeddings", json={"input": 5}).status_code == 400
        after = server.client.get("/metrics").text
    (route,) = call("here", "readRoutes", before, after)
    assert (route["route"], route["requests"]) == ("embeddings", 11)
    assert route["statuses"] == {"200": 10, "400": 1}
    assert 0 < route["latencies"][0] <= route["latencies"][1] < 5
    assert call("here", "readRoutes", after, after) == []
    load = call("here", "readLoad", before, after, 2.0)
    assert load["statuses"] == {"200": 5.0, "400": 0.5}
    assert (load["answered"], load["refused"], load["failed"]) == (5.0, 0.0, 0.5)
    assert 0 < load["texts"] <= 10
    assert load["queueTexts"] == 0
    assert load["lanes"] >= 1
    assert load["memory"] > 1e6
    assert 0 < load["latencies"][0] <= load["latencies"][2] < 5
    assert load["sentence"].startswith("Nothing is at its limit: engine calls run ")
    assert call("here", "readLoad", after, after, 2.0)["sentence"].startswith("Nothing to do")


def test_what_the_page_itself_asks_for_is_no_load() -> None:
    with serve_in_thread() as server:
        paths = [route.path for route in list_routes(server.service)]
        own = [path for path in paths if path.startswith(("/console", "/docs", "/openapi", "/metrics"))]
        before = server.client.get("/metrics").text
        for path in own:
            server.client.get(path)
        server.client.get("/v1/embedings")
        (found,) = call("here", "readRoutes", before, server.client.get("/metrics").text)
    assert len(own) >= 6
    assert (found["route"], found["statuses"]) == ("none", {"404": 1})


READING = """\
process_start_time_seconds{{process="a"}} {0}
process_start_time_seconds{{process="b"}} 1
vecmill_http_requests_total{{process="a",route="embeddings",status="200"}} {1}
vecmill_http_requests_total{{process="b",route="embeddings",status="200"}} {2}
vecmill_http_request_duration_seconds_bucket{{process="a",route="embeddings",le="0.01"}} {1}
vecmill_http_request_duration_seconds_bucket{{process="a",route="embeddings",le="+Inf"}} {1}
"""


def test_a_process_that_is_missing_in_a_reading_was_not_idle_before() -> None:
    both, later = READING.format(1, 1_000_000, 2_000_000), READING.format(1, 1_000_010, 2_000_020)
    first = "".join(line for line in both.splitlines(keepends=True) if 'process="b"' not in line)
    assert call("here", "readLoad", both, later, 10.0)["answered"] == 3
    assert call("here", "readLoad", first, later, 10.0)["answered"] == 1
    assert call("here", "readLoad", later, first, 10.0)["answered"] == 100_000  # it fell, so it began again
    assert call("here", "wasRestarted", both, later) is call("here", "wasRestarted", first, later) is False
    replaced = READING.format(9, 5, 2_000_000)
    assert call("here", "wasRestarted", both, replaced) is True
    assert call("here", "readLoad", both, replaced, 1.0)["answered"] == 5
    assert call("here", "readLoad", both, replaced, 1.0)["latencies"][0] == pytest.approx(0.005)


def test_the_sentence_names_the_limit() -> None:
    load: dict[str, Any] = {
        "answered": 90,
        "refused": 0,
        "failed": 0,
        "running": 1.95,
        "lanes": 2,
        "queueTexts": 12,
        "queueSeconds": 0.04,
        "rejections": [],
    }
    assert call("load.js", "explainLimit", load) == (
        "The engine is the limit: engine calls run 1.95 at a time, of at most 2; "
        "12 texts wait, for about 40 ms."
    )
    assert call("load.js", "explainLimit", {**load, "running": 0, "lanes": 0}).startswith("Nothing is at")
    refusing = {**load, "refused": 10, "rejections": [["queue_full", 10]]}
    assert call("load.js", "explainLimit", refusing).startswith(
        "The server refuses 10% of the requests (queue full): engine calls run 1.95 at a time"
    )


def test_saved_tables_are_read_back_and_are_no_formulas() -> None:
    rows = [["text", "score"], [HOSTILE, 0.5], ["=1+1", -2], ['a,"b"\nc', 1e-7]]
    text = call("take_away.js", "writeCsv", rows)
    found = list(csv.reader(io.StringIO(text, newline="")))
    assert found[1] == [HOSTILE, "0.5"]
    assert found[2] == ["'=1+1", "-2"]
    assert found[3] == ['a,"b"\nc', "1e-7"]


def test_the_snippets_are_answered() -> None:
    json = {"model": MODEL, "input": [HOSTILE, "plain"], "input_type": "query", "dimensions": 8}
    with serve_in_thread() as server:
        base = f"http://127.0.0.1:{server.port}/"
        snippets = call("snippets.js", "writeSnippets", "embed", "v1/embeddings", json, base)
        expected = httpx.post(f"{base}v1/embeddings", json=json).json()["data"]
        shell = subprocess.run(["sh", "-c", snippets["curl"]], capture_output=True, check=True, timeout=30)
        script = subprocess.run(
            [str(NODE), "--input-type=module", "-e", snippets["JavaScript"]],
            capture_output=True,
            check=True,
            timeout=30,
        )
    assert json_module.loads(shell.stdout)["data"] == expected
    assert b"embedding" in script.stdout


@pytest.mark.parametrize("kind", ["embed", "rerank", "classify", "entities"])
def test_the_programs_are_valid_python(kind: str) -> None:
    json = {
        "model": "m",
        "input": [HOSTILE],
        "query": HOSTILE,
        "documents": [HOSTILE, "b"],
        "normalize": False,
    }
    for needs_key in (False, True):
        snippets = call("snippets.js", "writeSnippets", kind, "x", json, "http://h/", needs_key=needs_key)
        for language in ("Python (openai)", "LangChain"):
            if language in snippets:
                tree = ast.parse(snippets[language])
                texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
                assert HOSTILE in texts
        assert shlex.split(snippets["curl"])[0] == "curl"
        assert all(("YOUR_KEY" in text) is needs_key for text in snippets.values())


def test_the_page_writes_no_markup_and_asks_no_other_host() -> None:
    for file in ASSETS.rglob("*"):
        if file.is_file() and "uplot" not in file.parts:
            text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
            for word in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "http:",
                "https:",
            ):
                assert word not in text, f"{file.name} has {word}"
