"""What dashboards of other servers read is there under their names, and equals our own figures."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from support.http_server import MODEL, QUIET, HttpServer, serve_in_thread, wait_until
from vecmill.directory_layouts import describe_model
from vecmill.models import Task, locate_model
from vecmill.models.heads import Activation, Head, HeadKind
from vecmill_server.base.settings import MetricAliases, ServerSettings

EMBEDDER, RERANKER = "an-embedder", "a-reranker"
REQUESTS = "vecmill_http_requests_total"
DURATIONS = "vecmill_http_request_duration_seconds"


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    """A server of two models that has answered well and badly, with all aliases."""
    plain = describe_model(locate_model())
    head = Head(HeadKind.SEQUENCE, ("LABEL_0",), Activation.SIGMOID)
    models = [
        replace(plain, name=EMBEDDER),
        replace(plain, name=RERANKER, task=Task.RERANK, dim=1, head=head, stages=()),
    ]
    settings = ServerSettings(lame_duck_s=0, access_log=False, metric_aliases=tuple(MetricAliases))
    with serve_in_thread(settings, models=models) as server:
        ask(server.client)
        wait_until(lambda: total(read(server.client), REQUESTS, route="embeddings") == 5)
        yield server


def ask(client: httpx.Client) -> None:
    for number in range(3):
        client.post("/v1/embeddings", json={"input": [f"text {number}", "and another"]})
    client.post("/embeddings", json={"input": []})
    client.post("/rerank", json={"query": "a", "documents": ["b", "c", "d"]})
    client.post("/rerank", json={"query": "a", "documents": ["b"], "model": EMBEDDER})
    client.post("/predict", json={"inputs": "a", "model": EMBEDDER})
    client.get("/models")
    client.get("/nowhere")
    client.post("/embeddings", json={"input": ["the", "last"]})


Series = tuple[str, Mapping[str, str], float]


def read(client: httpx.Client) -> list[Series]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def total(series: list[Series], name: str, **wanted: str) -> float:
    """The sum of the series of that name with these labels; fails if there is none."""
    found = [value for known, labels, value in series if known == name and wanted.items() <= labels.items()]
    assert found, f"there is no {name} with {wanted}"
    return sum(found)


def test_infinity_requests_are_ours_by_path_method_and_class_of_status(server: HttpServer) -> None:
    found = read(server.client)
    expected = [
        ({"handler": "/embeddings", "method": "POST", "status": "2xx"}, 4),
        ({"handler": "/embeddings", "method": "POST", "status": "4xx"}, 1),
        ({"handler": "/rerank", "method": "POST", "status": "2xx"}, 2),
        ({"handler": "/models", "method": "GET", "status": "2xx"}, 1),
        ({"handler": "none", "method": "GET", "status": "4xx"}, 1),
    ]
    for labels, value in expected:
        assert total(found, "http_requests_total", **labels) == value
    assert total(found, "http_requests_total", status="2xx") == total(found, REQUESTS, status="200")


@pytest.mark.parametrize("part", ["_bucket", "_count", "_sum"])
def test_infinity_durations_are_ours(server: HttpServer, part: str) -> None:
    found = read(server.client)
    bound = {"le": "0.25"} if part == "_bucket" else {}
    ours = total(found, DURATIONS + part, route="embeddings", **bound)
    assert total(found, f"http_request_duration_seconds{part}", handler="/embeddings", **bound) == ours
    every = total(found, DURATIONS + part, **bound)
    assert total(found, f"http_request_duration_highr_seconds{part}", **bound) == pytest.approx(every)


def test_tei_requests_are_those_that_ask_a_model(server: HttpServer) -> None:
    found = read(server.client)
    assert total(found, "te_request_count") == 8
    assert total(found, "te_request_success") == 6
    assert total(found, "te_request_duration_count") == 8
    routes = ("embeddings", "rerank", "predict")
    ours = sum(total(found, f"{DURATIONS}_sum", route=route) for route in routes)
    assert total(found, "te_request_duration_sum") == pytest.approx(ours)


def test_tei_failures_have_its_words_for_them(server: HttpServer) -> None:
    found = read(server.client)
    assert total(found, "te_request_failure", err="validation") == 1
    assert total(found, "te_request_failure", err="model_type") == 1
    assert total(found, "te_request_failure", err="unknown_route") == 1
    assert total(found, "te_request_failure") == total(found, "vecmill_http_errors_total")


@pytest.mark.parametrize(("kind", "model"), [("embed", EMBEDDER), ("predict", RERANKER)])
def test_tei_texts_are_those_of_models_of_the_kind(server: HttpServer, kind: str, model: str) -> None:
    found = read(server.client)
    pairs = {
        f"te_{kind}_count": "vecmill_texts_admitted_total",
        f"te_{kind}_queue_duration_count": "vecmill_queue_wait_seconds_count",
        f"te_{kind}_queue_duration_sum": "vecmill_queue_wait_seconds_sum",
        f"te_{kind}_inference_duration_sum": "vecmill_inference_seconds_sum",
    }
    for theirs, ours in pairs.items():
        assert total(found, theirs) == total(found, ours, model=model) > 0, theirs
    done = total(found, "vecmill_texts_finished_total", model=model, outcome="done")
    assert total(found, f"te_{kind}_success") == done > 0


def test_tei_batches_and_queue_are_ours_model_by_model(server: HttpServer) -> None:
    found = read(server.client)
    pairs = {
        "te_request_queue_duration_sum": "vecmill_queue_wait_seconds_sum",
        "te_request_inference_duration_count": "vecmill_inference_seconds_count",
        "te_batch_next_size_sum": "vecmill_batch_texts_sum",
        "te_batch_next_tokens_sum": "vecmill_batch_tokens_sum",
        "te_queue_size": "vecmill_queue_texts",
    }
    for theirs, ours in pairs.items():
        for model in (EMBEDDER, RERANKER):
            assert total(found, theirs, model=model) == total(found, ours, model=model), theirs


def test_vllm_texts_and_tokens_are_ours_model_by_model(server: HttpServer) -> None:
    found = read(server.client)
    pairs = {
        "vllm:num_requests_running": "vecmill_texts_running",
        "vllm:num_requests_waiting": "vecmill_queue_texts",
        "vllm:prompt_tokens_total": "vecmill_tokens_total",
        "vllm:iteration_tokens_total_sum": "vecmill_batch_tokens_sum",
        "vllm:request_queue_time_seconds_count": "vecmill_queue_wait_seconds_count",
        "vllm:request_inference_time_seconds_bucket": "vecmill_inference_seconds_bucket",
    }
    for theirs, ours in pairs.items():
        for model in (EMBEDDER, RERANKER):
            expected = total(found, ours, model=model)
            assert total(found, theirs, model_name=model, engine="0") == expected, theirs


def test_vllm_reasons_are_the_outcomes_of_texts(server: HttpServer) -> None:
    found = read(server.client)
    for outcome, reason in (("done", "stop"), ("failed", "error")):
        ours = total(found, "vecmill_texts_finished_total", model=EMBEDDER, outcome=outcome)
        labels = {"model_name": EMBEDDER, "finished_reason": reason}
        assert total(found, "vllm:request_success_total", **labels) == ours
    reasons = {labels["finished_reason"] for name, labels, _ in found if name == "vllm:request_success_total"}
    assert reasons == {"stop", "error", "abort"}


def test_vllm_latency_is_that_of_requests_if_the_server_has_one_model(server: HttpServer) -> None:
    assert not [name for name, _, _ in read(server.client) if name.startswith("vllm:e2e")]
    with serve_in_thread(replace(QUIET, metric_aliases=(MetricAliases.VLLM,))) as alone:
        alone.client.post("/embeddings", json={"input": "a"})
        alone.client.get("/models")
        wait_until(lambda: total(read(alone.client), REQUESTS, route="embeddings") == 1)
        found = read(alone.client)
    assert total(found, "vllm:e2e_request_latency_seconds_count", model_name=MODEL) == 1
    ours = total(found, f"{DURATIONS}_sum", route="embeddings")
    assert total(found, "vllm:e2e_request_latency_seconds_sum") == ours


def test_the_names_in_openmetrics_are_the_same(server: HttpServer) -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    page = server.client.get("/metrics", headers=accept).text
    families = openmetrics.text_string_to_metric_families(page)  # type: ignore[no-untyped-call]
    found = {sample.name for family in families for sample in family.samples}
    names = {name for name, _, _ in read(server.client)}
    assert {name for name in names ^ found if not name.endswith("_created")} == set()
    assert "vllm:num_requests_waiting" in found


def test_every_family_is_announced_once(server: HttpServer) -> None:
    lines = [line for line in server.client.get("/metrics").text.splitlines() if line.startswith("# TYPE")]
    assert len(lines) == len(set(lines)) > 30


@pytest.mark.linux
def test_without_the_setting_there_are_our_names_alone() -> None:
    with serve_in_thread() as server:
        assert {name.split("_")[0] for name, _, _ in read(server.client)} == {"vecmill", "process"}


@pytest.mark.linux
def test_one_set_of_names_does_not_bring_the_other() -> None:
    settings = ServerSettings(lame_duck_s=0, metric_aliases=(MetricAliases.TEI, MetricAliases.TEI))
    with serve_in_thread(settings) as server:
        names = {name.split("_")[0] for name, _, _ in read(server.client)}
    assert names == {"vecmill", "process", "te"}
