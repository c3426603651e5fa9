"""A server exposes the metrics that are declared, with their labels, and no others."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pages.metric_topics import LABEL_VALUES, all_definitions, kind_of, samples_of
from support.fake_nvml import FakeNvml
from support.http_server import DIM, QUIET, HttpServer, serve_in_thread
from vecmill.engines.fake import FakeEngine
from vecmill_server.telemetry.metrics import definitions


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml.install(monkeypatch)


@pytest.fixture
def server(tmp_path: Path, nvml: FakeNvml) -> Iterator[HttpServer]:
    """A server with the options under which each metric exists, which has answered well and badly."""
    settings = replace(
        QUIET,
        alias=("*",),
        api_key=("a-key",),
        batch_dir=tmp_path / "batches",
        result_cache_dir=tmp_path / "results",
    )
    engine = FakeEngine(dim=DIM)
    engine.info = replace(engine.info, device="cuda:0")
    with serve_in_thread(settings, engine=engine) as server:
        metrics, (model,) = server.service.metrics, server.service.catalog
        metrics.observe_loads(model.name, metrics.observe_model(model.name))  # as a memory budget does
        server.client.headers["authorization"] = "Bearer a-key"
        server.client.post("/v1/embeddings", json={"input": "a", "model": "unknown"})
        server.client.post("/v1/embeddings", json={"input": [], "unknown_field": 1})
        yield server


@pytest.mark.linux
@pytest.mark.promise("bounded-metrics")
def test_what_is_exposed_is_what_is_declared(server: HttpServer) -> None:
    declared = {one.name: one for one in all_definitions()}
    exposed = {}
    for family in text_string_to_metric_families(server.client.get("/metrics").text):
        if family.name.endswith("_created"):
            continue
        exposed[family.name] = family
    assert sys.platform == "linux"
    assert set(exposed) == set(declared)
    for name, family in exposed.items():
        assert family.type == kind_of(declared[name]), name
        if not name.startswith("process_"):  # whose texts are another package's
            assert family.documentation == declared[name].text
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                assert set(sample.labels) == set(samples_of(declared[name])[sample.name]), sample.name
        for label, values in LABEL_VALUES.get(declared[name], {}).items():
            assert {sample.labels[label] for sample in family.samples} <= set(values)


def test_every_declaration_has_a_topic() -> None:
    listed = [one.name for one in all_definitions()]
    assert len(listed) == len(set(listed))
    constants = (value for value in vars(definitions).values() if isinstance(value, definitions.Definition))
    assert {one.name for one in constants} <= set(listed)
