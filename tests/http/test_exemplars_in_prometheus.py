"""Prometheus itself takes the exemplars, and gives them back for a histogram."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from support.http_server import serve_in_thread, wait_until
from support.server import free_port
from vecmill_server.telemetry.tracing.exporter import SpanSender
from vecmill_server.telemetry.tracing.tracer import OpenTelemetryTracer

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
    ),
]
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE_ID}-b7ad6b7169203331-01"
HISTOGRAMS = (
    "vecmill_http_request_duration_seconds_bucket",
    "vecmill_queue_wait_seconds_bucket",
    "vecmill_inference_seconds_bucket",
)


class Discarding(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def query(url: str, name: str) -> list[dict[str, Any]]:
    """The exemplars of a metric that Prometheus has."""
    values = urllib.parse.urlencode({"query": name, "start": "0", "end": "4000000000"})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query_exemplars?{values}", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]
    except OSError:  # it has just started
        return []
    return [exemplar for series in found for exemplar in series["exemplars"]]


def test_prometheus_has_the_exemplars_of_each_histogram(tmp_path: Path) -> None:
    tracer = OpenTelemetryTracer(ALWAYS_ON, Resource({}), SpanSender(Discarding()))
    with serve_in_thread(tracer=tracer) as server:
        server.client.post("/v1/embeddings", json={"input": "text"}, headers={"traceparent": SAMPLED})
        config = tmp_path / "prometheus.yml"
        target = f"127.0.0.1:{server.port}"
        scrape = {"job_name": "vecmill", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        config.write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML
        port = free_port()
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
        ]
        with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
            try:
                url = f"http://127.0.0.1:{port}"
                wait_until(lambda: all(query(url, name) for name in HISTOGRAMS), patience_s=60.0)
                for name in HISTOGRAMS:
                    assert {found["labels"]["trace_id"] for found in query(url, name)} == {TRACE_ID}
            finally:
                process.terminate()
