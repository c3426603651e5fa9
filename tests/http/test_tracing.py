"""Spans arrive at a real receiver: whole, linked, without texts or keys, and never in the way of requests."""

import itertools
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from support.batches import create_batch, ended, request_line
from support.collector import Collector, Received, collect
from support.http_server import DIM, MODEL, QUIET, HttpServer, serve_in_thread, wait_until
from support.server import live_server
from vecmill.config import MillConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill_server.base.settings import MetricAliases, ServerSettings
from vecmill_server.telemetry.tracing.layout import MAX_BATCHES
from vecmill_server.telemetry.tracing.tracer import OpenTelemetryTracer, SpanSender, read_unix_offset_ns

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{PARENT_ID}-01"
NOT_SAMPLED = f"00-{TRACE_ID}-{PARENT_ID}-00"
EMBEDDINGS = "POST /v1/embeddings"
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0, text/plain; q=0.5"}
STAGES = [
    "read_body",
    "parse",
    "tokenise",
    "queue",
    "batch",
    "deliver",
    "build_response",
    "write_response",
]


@dataclass(frozen=True, slots=True)
class Traced:
    """A server, and the collector of its spans."""

    server: HttpServer
    collector: Collector

    def embed(self, *texts: str, **headers: str) -> httpx.Response:
        return self.server.client.post("/v1/embeddings", json={"input": texts}, headers=headers)


@contextmanager
def traced(
    settings: ServerSettings = QUIET,
    *,
    config: MillConfig | None = None,
    faults: FaultScript | None = None,
    sampler: Sampler = ALWAYS_ON,
    flush_s: float = 20.0,
) -> Iterator[Traced]:
    engine = None if faults is None else FakeEngine(dim=DIM, faults=faults)
    with collect() as collector:
        exporter = OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces", timeout=5)
        sender = SpanSender(exporter, flush_s=flush_s)
        tracer = OpenTelemetryTracer(sampler, Resource({"service.name": "test"}), sender)
        with serve_in_thread(settings, config=config, engine=engine, tracer=tracer) as server:
            yield Traced(server, collector)


def tree(collector: Collector, span: Received) -> dict[str, object]:
    return {child.name: tree(collector, child) for child in collector.children(span)}


def assert_contiguous(collector: Collector, root: Received) -> None:
    """The spans inside a request follow each other to the nanosecond, and fill it."""
    children = collector.children(root)
    assert [child.began_ns for child in children] == [
        root.began_ns,
        *(child.ended_ns for child in children[:-1]),
    ]
    assert children[-1].ended_ns == root.ended_ns


def test_a_pause_between_the_clocks_moves_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reading of the Unix time comes late, as of a thread that lost its processor."""
    ticks, pauses = itertools.count(), iter([5_000_000])  # nanoseconds
    paused_ns = 0

    def monotonic_ns() -> int:
        return next(ticks) + paused_ns

    def unix_ns() -> int:
        nonlocal paused_ns
        paused_ns += next(pauses, 0)
        return 1_000_000_000_000 + next(ticks) + paused_ns

    monkeypatch.setattr("time.monotonic_ns", monotonic_ns)
    monkeypatch.setattr("time.time_ns", unix_ns)
    assert read_unix_offset_ns() == 1_000_000_000_000


@pytest.mark.promise("traces-complete")
def test_the_spans_of_a_request_fill_its_time_and_link_its_batch() -> None:
    with traced() as it:
        answer = it.embed("one", "two")
    (root,) = it.collector.roots(EMBEDDINGS)
    assert list(tree(it.collector, root)) == STAGES
    assert_contiguous(it.collector, root)
    share = it.collector.children(root)[STAGES.index("batch")]
    assert list(tree(it.collector, share)) == ["engine"]
    (batch,) = it.collector.roots("batch")
    assert batch.trace_id == batch.attributes["vecmill.batch.id"]
    assert batch.links == [(root.trace_id, root.span_id)]
    assert share.links == [(batch.trace_id, batch.span_id)]
    assert (share.began_ns, share.ended_ns) == pytest.approx((batch.began_ns, batch.ended_ns), abs=10_000)
    assert list(tree(it.collector, batch)) == ["engine"]
    spans = it.collector.trace(root.trace_id)
    ids = {
        span.attributes.get("vecmill.batch.id") for span in spans if span.name in ("queue", "batch", "engine")
    }
    assert ids == {batch.trace_id}
    assert root.resource["service.name"] == "test"
    assert root.kind == 2  # of a server
    assert root.attributes == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "url.path": "/v1/embeddings",
        "network.protocol.version": "1.1",
        "http.route": "/v1/embeddings",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "vecmill",
        "gen_ai.request.model": MODEL,
        "gen_ai.usage.input_tokens": answer.json()["usage"]["total_tokens"],
        "vecmill.texts": 2,
        "vecmill.request_id": answer.headers["x-request-id"],
    }


def test_a_trace_of_the_client_goes_on() -> None:
    with traced() as it:
        it.embed("one", traceparent=SAMPLED, tracestate="vendor=value")
        it.embed("two", traceparent=f"00-{'0' * 32}-{PARENT_ID}-01")
        it.embed("three", traceparent="nonsense")
        # A header of a later version may go on after a dash.
        headers = [("traceparent", f"01{SAMPLED[2:]}-more"), ("traceparent", SAMPLED)]
        it.server.client.post("/v1/embeddings", json={"input": "four"}, headers=headers)
    first, *others = it.collector.roots(EMBEDDINGS)
    assert (first.trace_id, first.parent_id, first.trace_state) == (TRACE_ID, PARENT_ID, "vendor=value")
    assert len({other.trace_id for other in others} - {TRACE_ID}) == 3
    assert all(other.parent_id == "" for other in others)


def test_a_trace_that_is_not_sampled_sends_nothing_but_its_id_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "vecmill.access")
    settings = replace(QUIET, access_log=True)
    with traced(settings, sampler=ParentBased(ALWAYS_ON)) as it:
        it.embed("one", traceparent=NOT_SAMPLED)
        it.embed("two", traceparent=SAMPLED.replace("319c", "319d"))
        metrics = it.server.client.get("/metrics", headers=OPENMETRICS).text
    assert {span.trace_id for span in it.collector.roots(EMBEDDINGS)} == {TRACE_ID.replace("319c", "319d")}
    assert TRACE_ID not in metrics
    logged = [record.__dict__.get("trace_id") for record in caplog.records if record.name == "vecmill.access"]
    assert logged[:2] == [TRACE_ID, TRACE_ID.replace("319c", "319d")]


def test_two_requests_in_one_batch_are_both_linked() -> None:
    faults = FaultScript(calls={0: Fault.HANG})
    with traced(config=MillConfig(cores=1), faults=faults) as it, ThreadPoolExecutor(3) as threads:
        first = threads.submit(it.embed, "first")
        it.server.engine.wait_for_calls(1)
        later = [threads.submit(it.embed, "second"), threads.submit(it.embed, "third", "first")]
        wait_until(lambda: it.server.metric("vecmill_texts_admitted_total", model=MODEL) == 4)
        it.server.engine.released.set()
        answers = [one.result() for one in (first, *later)]
    ids = {answer.headers["x-request-id"]: answer for answer in answers}
    roots = {span.attributes["vecmill.request_id"]: span for span in it.collector.roots(EMBEDDINGS)}
    assert roots.keys() == ids.keys()
    alone, second, third = (roots[answer.headers["x-request-id"]] for answer in answers)
    first_batch, second_batch = it.collector.roots("batch")
    assert set(first_batch.links) == {(each.trace_id, each.span_id) for each in (alone, third)}
    assert set(second_batch.links) == {(each.trace_id, each.span_id) for each in (second, third)}
    # The third request joined the computation of the first, and was in the second batch too.
    compute = it.collector.children(third)[STAGES.index("batch")]
    assert compute.name == "compute"
    assert [child.links for child in it.collector.children(compute)] == [
        [(batch.trace_id, batch.span_id)] for batch in (first_batch, second_batch)
    ]
    for root in roots.values():
        assert_contiguous(it.collector, root)


def test_a_large_request_has_a_bounded_number_of_spans() -> None:
    with traced(config=MillConfig(cores=1)) as it:
        assert it.embed(*(f"text {number} " * 40 for number in range(700))).status_code == 200
    (root,) = it.collector.roots(EMBEDDINGS)
    compute = it.collector.children(root)[STAGES.index("batch")]
    children = it.collector.children(compute)
    assert 1 < len(children) == min(MAX_BATCHES, compute.attributes["vecmill.batches"])
    assert len(it.collector.roots("batch")) == compute.attributes["vecmill.batches"]
    assert_contiguous(it.collector, root)


@pytest.mark.promise("traces-complete")
def test_failures_are_in_the_span_of_their_stage() -> None:
    faults = FaultScript(calls={0: Fault.RAISE, 1: Fault.HANG})
    with traced(config=MillConfig(cores=1), faults=faults) as it:
        assert it.embed("fails").status_code == 500
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(it.embed, "hangs")
            it.server.engine.wait_for_calls(2)
            late = it.embed("late", **{"x-request-timeout-ms": "40"})
            assert late.status_code == 504
            it.server.engine.released.set()
            running.result()
        it.server.client.post("/v1/embeddings", json={"input": [7]})
    failed, _, expired, refused = it.collector.roots(EMBEDDINGS)
    assert (failed.has_failed, failed.attributes["error.type"]) == (True, "inference_failed")
    assert (expired.has_failed, expired.attributes["error.type"]) == (True, "deadline_exceeded")
    # By the conventions for HTTP, the error of a client is no failure of the server.
    assert (refused.has_failed, refused.attributes["error.type"]) == (False, "invalid_request")
    for root, stage in ((failed, "batch"), (expired, "queue")):
        (child,) = (each for each in it.collector.children(root) if each.has_failed)
        assert (child.name, child.attributes["error.type"]) == (stage, root.attributes["error.type"])
        assert_contiguous(it.collector, root)
    assert it.collector.roots("batch")[0].has_failed


def test_a_client_that_leaves_is_in_its_trace() -> None:
    with traced(config=MillConfig(cores=1), faults=FaultScript(calls={0: Fault.HANG})) as it:
        body = b'{"input": "abandoned"}'
        head = f"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        with it.server.connect() as connection:
            connection.sendall(head.encode() + body)
            it.server.engine.wait_for_calls(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wait_until(
            lambda: it.server.metric("vecmill_texts_finished_total", model=MODEL, outcome="cancelled") == 1
        )
        it.server.engine.released.set()
    (root,) = it.collector.roots(EMBEDDINGS)
    assert root.attributes["error.type"] == "client_gone"
    assert "http.response.status_code" not in root.attributes
    assert [child.name for child in it.collector.children(root)][-1] != "write_response"
    assert_contiguous(it.collector, root)


def test_a_composed_request_has_a_span_for_each_part(tmp_path: Path) -> None:
    with traced() as it:
        body = {"instances": [{"inputs": "one"}, {"inputs": "two"}]}
        assert it.server.client.post("/vertex", json=body).status_code == 200
    (root,) = it.collector.roots("POST /vertex")
    (answer,) = (each for each in it.collector.children(root) if each.name == "answer")
    assert [child.name for child in it.collector.children(answer)] == ["run", "run"]
    assert_contiguous(it.collector, root)


def test_each_line_of_a_batch_has_a_trace(tmp_path: Path) -> None:
    with traced(replace(QUIET, batch_dir=tmp_path)) as it:
        lines = [request_line(f"planted-{number}", {"input": f"text {number}"}) for number in range(3)]
        batch_id = create_batch(it.server.client, lines)
        assert ended(it.server.client, batch_id)["status"] == "completed"
    traces = it.collector.roots("batch_line")
    assert {
        (span.attributes["vecmill.batch_api.batch"], span.attributes["vecmill.batch_api.line"])
        for span in traces
    } == {(batch_id, number) for number in (1, 2, 3)}
    for span in traces:
        names = [child.name for child in it.collector.children(span)]
        assert names[:3] == ["tokenise", "queue", "batch"]
    assert it.collector.roots("POST /v1/files")
    assert not any(b"planted" in body for body in it.collector.bodies)


def test_no_text_and_no_key_is_in_a_span() -> None:
    planted = (
        "planted-text",
        "planted-key",
        "planted-query",
        "planted-path",
        "planted-model",
        "planted-header",
    )
    settings = replace(QUIET, api_key=("planted-key",), alias=("*",))
    with traced(settings) as it:
        headers = {"authorization": "Bearer planted-key", "x-custom": "planted-header"}
        post = it.server.client.post
        body = {"input": "planted-text", "model": "planted-model", "user": "planted-header"}
        assert post("/v1/embeddings?key=planted-query", json=body, headers=headers).status_code == 200
        assert post("/v1/embeddings", json=body).status_code == 401
        assert post("/v1/embeddings", json={"input": {"planted-text": 1}}, headers=headers).status_code == 400
        assert post("/planted-path", json=body, headers=headers).status_code == 404
        assert post("/openai/deployments/planted-path/embeddings", json=body, headers=headers).is_success
        assert it.server.client.request("PLANTED-KEY", "/v1/embeddings", headers=headers).is_error
    assert len(it.collector.spans) > 20
    sent = b"".join(it.collector.bodies).lower()
    assert not any(word.encode() in sent for word in planted)


def test_probes_and_scrapes_have_no_traces() -> None:
    with traced() as it:
        for path in ("/health", "/livez", "/readyz", "/metrics", "/"):
            assert it.server.client.get(path).status_code == 200
        it.server.client.get("/v1/models")
    assert {span.name for span in it.collector.spans if not span.parent_id} == {"GET /v1/models"}


def test_the_histograms_have_exemplars_in_openmetrics() -> None:
    with traced() as it:
        it.embed("one", traceparent=SAMPLED)
        answer = it.server.client.get("/metrics", headers=OPENMETRICS)
        plain = it.server.client.get("/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    (root,) = it.collector.roots(EMBEDDINGS)
    label = f'trace_id="{TRACE_ID}"'
    with_exemplars = {line.partition("_bucket")[0] for line in answer.text.splitlines() if label in line}
    assert with_exemplars == {
        "vecmill_http_request_duration_seconds",
        "vecmill_queue_wait_seconds",
        "vecmill_inference_seconds",
    }
    assert f'span_id="{root.span_id}"' in answer.text
    assert plain.headers["content-type"].startswith("text/plain")
    assert " # {" not in plain.text


@pytest.mark.parametrize("aliases", [(), tuple(MetricAliases)])
def test_the_metrics_are_valid_openmetrics_with_the_same_values(aliases: tuple[MetricAliases, ...]) -> None:
    with traced(replace(QUIET, metric_aliases=aliases)) as it:
        it.embed("one")
        text = it.server.client.get("/metrics", headers=OPENMETRICS).text
        plain = it.server.client.get("/metrics").text
    # Raises an error for text that is not valid.
    families = list(openmetrics_families(text))  # type: ignore[no-untyped-call]
    names = {sample.name for family in families for sample in family.samples}
    of_plain = {sample.name for family in plain_families(plain) for sample in family.samples}
    assert names == of_plain
    assert bool(aliases) == ("te_request_count" in names)


def test_a_dead_collector_is_logged_once_and_keeps_nobody_waiting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with traced() as it:
        it.collector.status = 400
        for number in range(1, 4):
            assert it.embed(f"text {number}").status_code == 200
            wait_until(lambda number=number: it.collector.requests >= number)  # type: ignore[misc]
        it.collector.status = 200
        it.embed("text")
        wait_until(lambda: len(it.collector.bodies) > 0)
    messages = [record.message for record in caplog.records if record.name.endswith("tracing.tracer")]
    assert len(messages) == 2
    assert "does not take spans" in messages[0]
    assert "400" in messages[0]
    assert "takes spans again" in messages[1]
    assert not any(record.name.startswith("opentelemetry") for record in caplog.records)


def test_two_servers_of_a_process_both_log_why_their_collector_fails(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with traced() as one, traced() as other:
        for it in (one, other):
            it.collector.status = 400
            assert it.embed("text").status_code == 200
            wait_until(lambda it=it: it.collector.requests >= 1)  # type: ignore[misc]
        wait_until(lambda: sum("does not take spans" in each for each in caplog.messages) == 2)
    assert all("400" in each for each in caplog.messages if "does not take spans" in each)


def test_spans_that_a_full_queue_drops_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_QUEUE_SIZE", "MAX_EXPORT_BATCH_SIZE"):
        monkeypatch.setenv(f"OTEL_BSP_{name}", "4")
    with traced(flush_s=0.2) as it:
        it.collector.released.clear()
        for number in range(3):  # nine spans each
            assert it.embed(f"text {number}").status_code == 200
        wait_until(lambda: any("more spans than the collector takes" in each for each in caplog.messages))
        it.collector.released.set()


def test_a_collector_that_hangs_delays_neither_requests_nor_the_stop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with traced(flush_s=0.2) as it:
        it.collector.released.clear()
        assert it.embed("one").status_code == 200
        wait_until(lambda: it.collector.requests == 1)
        assert it.embed("two").status_code == 200
    assert [record for record in caplog.records if "were not sent within 0.2 seconds" in record.message]


def test_a_process_sends_its_spans_as_the_environment_says(tmp_path: Path) -> None:
    with collect() as collector:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_SERVICE_NAME": "embedder",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
            "OTEL_TRACES_SAMPLER": "parentbased_always_off",
            "OTEL_BSP_SCHEDULE_DELAY": "600000",  # so that the stop has to send
        }
        command = (
            "env",
            *(f"{name}={value}" for name, value in variables.items()),
            sys.executable,
            "-m",
            "vecmill",
        )
        arguments = ("--engine", "fake", "--tracing", "--log-format", "json")
        with live_server(tmp_path, arguments=arguments, command=command) as server:
            for headers in ({}, {"traceparent": SAMPLED}):
                body = {"input": "text"}
                assert (
                    httpx.post(f"{server.url}/v1/embeddings", json=body, headers=headers).status_code == 200
                )
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(30) == 0
            lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    (root,) = collector.roots(EMBEDDINGS)
    assert root.trace_id == TRACE_ID
    assert root.resource["service.name"] == "embedder"
    assert root.resource["deployment.environment.name"] == "test"
    assert {"service.version", "telemetry.sdk.name"} <= root.resource.keys()
    requests = [line for line in lines if line.get("route") == "embeddings"]
    assert [len(line["trace_id"]) for line in requests] == [32, 32]
    assert requests[1]["trace_id"] == TRACE_ID


def test_without_tracing_opentelemetry_is_not_imported() -> None:
    program = (
        "import sys, vecmill_server.cli.serve, vecmill_server.app, vecmill_server.process.runner;"
        "from vecmill_server.service.service import create_service;"
        "from vecmill_server.base.settings import ServerSettings;"
        "from vecmill.config import MillConfig;"
        "create_service([], ServerSettings(), MillConfig());"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
