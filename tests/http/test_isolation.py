"""A model that cannot be loaded or computed is named, and the other models are served."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import describe_tasks
from support.http_server import QUIET, build_service, run_in_thread
from vecmill.config import MillConfig
from vecmill.engines.fake import FakeEngine
from vecmill.errors import CorruptModel
from vecmill.mill import Mill
from vecmill.models import Task
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel
from vecmill_server.base.settings import ServerSettings

MESSAGE = "/home/operator/models/model.safetensors is truncated."
REASON = "The files of this model are damaged or incomplete. The log of the server has the details."
NAMES = ("model/embed", "model/sparse")


class Broken(FakeEngine):
    """An engine that cannot be started."""

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        raise CorruptModel(MESSAGE)


@contextmanager
def two_models(
    first: FakeEngine, second: FakeEngine, settings: ServerSettings = QUIET
) -> Iterator[httpx.Client]:
    """A client of a server of an embedding model and a sparse model."""
    described = describe_tasks()
    models = [(described[Task.EMBED], first), (described[Task.SPARSE], second)]
    service = build_service(settings, models, config=MillConfig(cores=1))
    with (
        run_in_thread(service) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client,
    ):
        yield client


def engine(task: Task, kind: type[FakeEngine] = FakeEngine) -> FakeEngine:
    """An engine for a described model."""
    found = describe_tasks()[task]
    return kind(dim=found.dim, output_shape=found.output_shape)


def embed(client: httpx.Client, **more: str) -> httpx.Response:
    return client.post("/v1/embeddings", json={"input": "a", **more})


def sparse(client: httpx.Client, **more: str) -> httpx.Response:
    return client.post("/embed_sparse", json={"inputs": "a", **more})


@pytest.mark.promise("verified-start")
def test_a_model_that_fails_to_load_is_named_and_the_other_is_served() -> None:
    with two_models(engine(Task.EMBED, kind=Broken), engine(Task.SPARSE)) as client:
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert ready.json()["models"] == [
            {"name": "model/embed", "state": "failed", "reason": REASON},
            {"name": "model/sparse", "state": "ready", "reason": None},
        ]
        assert client.get("/health").json()["models"] == ready.json()["models"]
        assert client.get("/livez").status_code == 200
        assert sparse(client).status_code == 200
        for answer in (embed(client, model="model/embed"), embed(client)):
            assert answer.status_code == 503
            assert "`model/embed` could not be loaded" in answer.json()["error"]["message"]
            assert int(answer.headers["retry-after"]) >= 1
        metrics = client.get("/metrics").text
        assert 'vecmill_model_ready{model="model/embed"} 0.0' in metrics
        assert 'vecmill_model_ready{model="model/sparse"} 1.0' in metrics
        assert {entry["id"] for entry in client.get("/models").json()["data"]} == set(NAMES)
        assert client.get("/info").status_code == 503
        assert "model/embed" in client.get("/info").json()["error"]


def test_probes_do_not_show_paths_which_the_log_has(caplog: pytest.LogCaptureFixture) -> None:
    with two_models(engine(Task.EMBED, kind=Broken), engine(Task.SPARSE)) as client:
        answers = [client.get(path) for path in ("/readyz", "/health", "/ping", "/", "/.well-known/ready")]
        answers += [embed(client), client.get("/info")]
    assert MESSAGE in caplog.text
    assert not [answer.text for answer in answers if "/home" in answer.text]


def lose_workers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the model with this name lose all of its workers for good."""
    monkeypatch.setattr(Mill, "is_lost", property(lambda mill: mill.description.name == name))


@pytest.mark.promise("lost-lane-noticed")
def test_a_model_that_loses_its_workers_is_named_and_the_other_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with two_models(engine(Task.EMBED), engine(Task.SPARSE)) as client:
        assert client.get("/readyz").json()["models"][1]["state"] == "ready"
        lose_workers(monkeypatch, "model/sparse")
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["models"][1]["state"] == "lost"
        assert ready.json()["models"][1]["reason"]
        answer = sparse(client)
        assert answer.status_code == 503
        assert "`model/sparse` has lost its workers" in answer.json()["error"]
        assert embed(client).status_code == 200


@pytest.mark.promise("honest-health")
def test_a_server_without_a_ready_model_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    with two_models(engine(Task.EMBED, kind=Broken), engine(Task.SPARSE)) as client:
        lose_workers(monkeypatch, "model/sparse")
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "lost")
        assert ready.headers["retry-after"] == "2"
        assert client.get("/livez").status_code == 200


def test_with_strict_one_model_that_is_not_ready_makes_the_server_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with two_models(engine(Task.EMBED), engine(Task.SPARSE), replace(QUIET, strict=True)) as client:
        assert client.get("/readyz").status_code == 200
        lose_workers(monkeypatch, "model/sparse")
        assert client.get("/readyz").status_code == 503


class Wrong(FakeEngine):
    """An engine whose embeddings the self-check refuses."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.info = replace(self.info, precision="fp32")

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        embeddings = super().run(batch, width=width)
        embeddings.values[:] = np.nan
        return embeddings


def test_a_model_that_failed_after_its_engine_had_loaded_is_closed() -> None:
    wrong = engine(Task.EMBED, kind=Wrong)
    with two_models(wrong, engine(Task.SPARSE)) as client:
        assert [model["state"] for model in client.get("/readyz").json()["models"]] == ["failed", "ready"]
        assert wrong.closed
        assert embed(client).status_code == 503


def test_a_server_that_is_not_ready_says_so_to_weaviate_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with two_models(engine(Task.EMBED), engine(Task.SPARSE)) as client:
        monkeypatch.setattr(Mill, "is_lost", property(lambda _mill: True))
        answers = [client.get(path) for path in ("/.well-known/ready", "/readyz")]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert answers[0].json()["status"] == answers[1].json()["status"]
        assert client.get("/.well-known/live").status_code == 204
        monkeypatch.undo()
