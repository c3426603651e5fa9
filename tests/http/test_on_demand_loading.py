"""A real server with more models than memory: loads, drops, keys, Ollama's calls, and what probes say."""

import gc
import json
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.batches import create_batch, ended, request_line
from support.http_server import PATIENCE_S, run_in_thread, wait_until
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.hardware.memory import mapped_mb
from vecmill.models import ModelDescription
from vecmill.serving_plan.needs import SERVER_MB
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog import on_demand_model
from vecmill_server.catalog.memory_budget import MEBIBYTE, MODELS_SHARE
from vecmill_server.catalog.model_choice import ModelChoice
from vecmill_server.service.service import Service, create_service

NAMES = ("a", "b", "c", "d")
ADMIN, KEY = "the-admin-key", "a-key"
# There is room for two of the four, which count 31 MB each, beside what the tests take.
ROOM_MB = 70.0


@dataclass(frozen=True, slots=True)
class Catalogued:
    """A server, and clients with no key and with an admin key."""

    service: Service
    client: httpx.Client
    admin: httpx.Client

    def states(self) -> dict[str, str]:
        return {each["name"]: each["state"] for each in self.client.get("/readyz").json()["models"]}

    def loaded(self) -> set[str]:
        running = self.client.get("/api/ps").json()["models"]
        return {each["name"].removesuffix(":latest") for each in running}

    def embed(self, model: str, **more: Any) -> httpx.Response:
        return self.client.post("/api/embed", json={"model": model, "input": "hello", **more})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(NAMES):
        save_tiny_bert(folder / name, TinyBert(seed=seed))
    return folder


def budget_mib() -> int:
    return round((max(SERVER_MB, mapped_mb()) + ROOM_MB) / MODELS_SHARE * 1e6 / MEBIBYTE)


@contextmanager
def serve(
    models: Path, *, names: tuple[str, ...] = NAMES, engine: str | None = "fake", **more: Any
) -> Iterator[Catalogued]:
    """Serve models with the fake engine, or with their own where `engine` is none."""
    keys = models / "admin-keys"
    keys.write_text(f"ops {ADMIN}\n")
    settings = ServerSettings(
        lame_duck_s=0, drain_s=5, memory_budget_mib=budget_mib(), admin_key_file=keys, **more
    )
    config = MillConfig(engine=engine, cache_dir=models / "cache")
    service = create_service([ModelChoice(str(models / name)) for name in names], settings, config)
    with run_in_thread(service) as (port, _):
        url = f"http://127.0.0.1:{port}"
        headers = {"authorization": f"Bearer {ADMIN}"}
        with (
            httpx.Client(base_url=url, timeout=PATIENCE_S) as client,
            httpx.Client(base_url=url, timeout=PATIENCE_S, headers=headers) as admin,
        ):
            yield Catalogued(service, client, admin)


@pytest.fixture(scope="module")
def refusing(models: Path) -> Iterator[Catalogued]:
    """A server for requests that change nothing."""
    with serve(models) as server:
        yield server


@pytest.mark.promise("verified-start", "honest-health")
def test_a_model_is_loaded_when_it_is_asked_for_and_leaves_for_another(models: Path) -> None:
    with serve(models, engine=None) as server:
        assert server.states() == dict.fromkeys(NAMES, "not_loaded")
        first = server.embed("a").json()["embeddings"][0]
        assert server.states()["a"] == "ready"
        for name in NAMES[1:]:
            assert server.embed(name).status_code == 200
            assert server.client.get("/readyz").status_code == 200
        assert server.states()["a"] == "not_loaded"
        assert server.embed("a").json()["embeddings"][0] == pytest.approx(first, abs=1e-6)
        listed = {each["id"]: each["state"] for each in server.client.get("/v1/models").json()["data"]}
        assert listed == server.states()


@pytest.mark.promise("alerts-true")
def test_a_model_that_is_not_loaded_counts_as_ready_and_keeps_its_counts(models: Path) -> None:
    with serve(models, model_keep_alive_s=0) as server:
        for _ in range(2):
            server.embed("a")
            wait_until(lambda: server.states()["a"] == "not_loaded")
        lane = 'vecmill_lane_state{lane="0",model="a"'
        wait_until(lambda: lane not in server.client.get("/metrics").text)
        page = server.client.get("/metrics").text
        assert 'vecmill_model_ready{model="a"} 1.0' in page
        assert 'vecmill_model_state{model="a",state="not_loaded"} 1.0' in page
        assert 'vecmill_model_loads_total{model="a",outcome="loaded"} 2.0' in page
        assert 'vecmill_texts_admitted_total{model="a"} 2.0' in page


@pytest.mark.promise("idle-is-idle")
def test_an_idle_model_is_gone_after_its_time(models: Path) -> None:
    with serve(models, model_keep_alive_s=0.3) as server:
        server.embed("a")
        began = time.monotonic()
        wait_until(lambda: server.states()["a"] == "not_loaded")
        assert time.monotonic() - began < 2.0


@pytest.mark.promise("answered-once")
def test_many_clients_of_more_models_than_fit_are_all_answered(models: Path) -> None:
    with serve(models) as server, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: server.embed(NAMES[number * 7 % 4]), range(80)))
        residency = server.service.catalog.residency
        assert residency is not None
        assert {answer.status_code for answer in answers} <= {200, 429, 503}
        assert sum(answer.status_code == 200 for answer in answers) >= 50
        assert all("retry-after" in answer.headers for answer in answers if answer.status_code != 200)
        wait_until(lambda: not any(each.leases for each in residency))
        assert (residency.waiting_count, residency.memory.held_mb <= residency.memory.budget_mb) == (0, True)


def test_the_lines_of_a_batch_are_answered_by_models_that_do_not_fit_together(
    models: Path, tmp_path: Path
) -> None:
    with serve(models, batch_dir=tmp_path) as server:
        lines = [
            request_line(f"{name} {number}", {"input": "hello", "model": name})
            for number in range(10)
            for name in NAMES
        ]
        batch = ended(server.client, create_batch(server.client, lines))
        assert batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}


def test_a_model_that_cannot_be_loaded_is_an_error_of_its_own(models: Path, tmp_path: Path) -> None:
    broken = save_tiny_bert(tmp_path / "broken")
    names = ("a", str(broken))
    with serve(models, names=names, engine=None) as server:
        (broken / "model.safetensors").write_bytes(b"\0" * 64)
        refusal = server.embed("broken")
        assert refusal.status_code == 503
        assert "could not be loaded" in refusal.json()["error"]
        assert str(tmp_path) not in refusal.text
        assert int(refusal.headers["retry-after"]) >= 1
        assert server.embed("a").status_code == 200
        ready = server.client.get("/readyz")
        assert (ready.status_code, server.states()["broken"]) == (200, "failed")


def test_a_model_whose_files_changed_is_loaded_with_its_new_settings(models: Path, tmp_path: Path) -> None:
    changing = save_tiny_bert(tmp_path / "changing")
    with serve(models, names=("a", str(changing)), result_cache_memory_bytes=10**6, engine=None) as server:
        first = server.embed("changing")
        server.admin.post("/api/embed", json={"model": "changing", "keep_alive": 0})
        wait_until(lambda: server.loaded() == set())
        prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
        (changing / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        again = server.embed("changing")
        assert again.headers["x-prompt-name"] == "query"
        assert again.headers["x-space"] != first.headers["x-space"]
        assert again.json()["embeddings"] != first.json()["embeddings"]


@pytest.mark.promise("honest-health")
def test_settings_that_take_for_ever_to_read_keep_no_other_model_waiting(
    models: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(models, names=("a", "b")) as served:
        entry, is_over = served.service.on_demand_models["a"], threading.Event()
        began: list[None] = []
        described = entry.served.mill.description

        def read() -> ModelDescription:
            began.append(None)
            assert is_over.wait(PATIENCE_S)
            return described

        monkeypatch.setattr(entry, "_describe", read)
        monkeypatch.setattr(on_demand_model, "SETTINGS_S", 0.0)
        assert served.embed("a").status_code == 503
        assert "The settings of a could not be read within" in caplog.text
        monkeypatch.undo()
        monkeypatch.setattr(entry, "_describe", read)
        assert served.embed("b").status_code == 200
        # The thread is not started again while it reads, and later the settings are read anew.
        resident = entry.served.resident
        assert resident is not None
        resident.retry_at = 0.0
        assert served.embed("a").status_code == 503
        assert len(began) == 1
        is_over.set()
        wait_until(lambda: entry._reading is not None and entry._reading.done())
        resident.retry_at = 0.0
        assert served.embed("a").status_code == 200
        assert len(began) == 2


@pytest.mark.promise("honest-health")
def test_a_server_whose_only_model_failed_gets_requests_again_and_recovers(
    models: Path, tmp_path: Path
) -> None:
    whole = save_tiny_bert(tmp_path / "only") / "model.safetensors"
    with serve(models, names=(str(tmp_path / "only"),), engine=None) as server:
        weights = whole.read_bytes()
        whole.write_bytes(b"\0" * 64)
        assert server.embed("only").status_code == 503
        assert (server.client.get("/readyz").status_code, server.states()) == (503, {"only": "failed"})
        whole.write_bytes(weights)
        wait_until(lambda: server.client.get("/readyz").status_code == 200)
        assert server.states() == {"only": "failed"}
        assert 'vecmill_model_ready{model="only"} 0.0' in server.client.get("/metrics").text
        assert server.embed("only").status_code == 200
        assert server.states() == {"only": "ready"}


def test_an_entry_that_is_wrong_is_found_at_the_start(models: Path, tmp_path: Path) -> None:
    broken = save_tiny_bert(tmp_path / "broken")
    (broken / "model.safetensors").unlink()
    with serve(models, names=("a", str(broken)), engine=None) as server:
        assert server.states() == {"a": "not_loaded", "broken": "failed"}


def test_keep_alive_of_a_request_shortens_nothing_for_others_and_an_admin_decides(models: Path) -> None:
    with serve(models) as server:
        server.embed("a")
        server.embed("a", keep_alive=0)
        server.embed("a", keep_alive=-1)
        (entry,) = server.client.get("/api/ps").json()["models"]
        assert not entry["expires_at"].startswith("9999")
        assert entry["size"] > 0
        server.admin.post("/api/embed", json={"model": "a", "keep_alive": -1})
        (entry,) = server.client.get("/api/ps").json()["models"]
        assert entry["expires_at"].startswith("9999")
        server.admin.post("/api/embed", json={"model": "a", "keep_alive": "0s"})
        wait_until(lambda: server.loaded() == set())


def test_an_own_request_with_keep_alive_0_is_dropped_at_once(models: Path) -> None:
    with serve(models) as server:
        server.embed("a", keep_alive=0)
        wait_until(lambda: server.loaded() == set())


@pytest.mark.parametrize("path", ["/api/embed", "/api/embeddings"])
def test_a_model_is_not_loaded_only_to_be_dropped(refusing: Catalogued, path: str) -> None:
    for client in (refusing.client, refusing.admin):
        assert client.post(path, json={"model": "a", "keep_alive": 0}).status_code == 200
    loads = 'vecmill_model_loads_total{model="a",outcome="loaded"} 0.0'
    assert loads in refusing.client.get("/metrics").text


def test_nothing_of_a_dropped_model_stays_in_memory(models: Path) -> None:
    with serve(models) as server:
        (served,) = [model for model in server.service.catalog if model.name == "a"]
        server.embed("a")
        for path in ("/v1/accuracy/a", "/v1/models/a", "/metrics"):
            assert server.client.get(path).status_code == 200
        mill = weakref.ref(served.mill)
        server.admin.post("/api/embed", json={"model": "a", "keep_alive": 0})
        wait_until(lambda: gc.collect() >= 0 and mill() is None)


@pytest.mark.parametrize("keep_alive", ["5x", "m", "", [], True, "1e3", "1h" * 7])
def test_a_keep_alive_that_is_none_is_refused(refusing: Catalogued, keep_alive: Any) -> None:
    refusal = refusing.embed("a", keep_alive=keep_alive)
    assert refusal.status_code == 400
    assert "`keep_alive`" in refusal.json()["error"]


def test_only_an_admin_key_loads_and_removes(models: Path) -> None:
    with serve(models, api_key=(KEY,)) as server:
        client, admin = server.client, server.admin
        client.headers["authorization"] = f"Bearer {KEY}"
        assert client.post("/api/pull", json={"model": "a"}).json() == {"status": "success"}
        assert server.loaded() == set()
        assert admin.post("/api/pull", json={"model": "a"}).json() == {"status": "success"}
        assert server.loaded() == {"a"}
        assert client.request("DELETE", "/api/delete", json={"model": "a"}).status_code == 403
        assert admin.request("DELETE", "/api/delete", json={"model": "a"}).status_code == 200
        wait_until(lambda: server.loaded() == set())
        assert server.embed("a").status_code == 404
        assert "a" not in server.states()
        refusal = client.post("/api/pull", json={"model": "a"})
        assert (refusal.status_code, refusal.json()["error"][:8]) == (403, "Only a k")
        assert admin.post("/api/pull", json={"model": "a"}).status_code == 200
        assert server.embed("a").status_code == 200


@pytest.mark.parametrize("name", ["nobody", "../admin-keys", "/etc", "owner/name"])
def test_requests_name_entries_only(refusing: Catalogued, name: str) -> None:
    assert refusing.admin.post("/api/pull", json={"model": name}).status_code == 404
    assert refusing.admin.request("DELETE", "/api/delete", json={"model": name}).status_code == 404
    assert refusing.admin.request("DELETE", "/api/delete", json={}).status_code == 400


def test_the_last_model_stays(models: Path) -> None:
    with serve(models, names=("a",)) as server:
        assert server.admin.request("DELETE", "/api/delete", json={"model": "a"}).status_code == 400


def test_a_description_needs_no_load(models: Path) -> None:
    with serve(models) as server:
        shown = server.client.post("/api/show", json={"model": "a"}).json()
        assert shown["model_info"]["general.basename"] == "a"
        listed = [each["name"] for each in server.client.get("/api/tags").json()["models"]]
        assert listed == [f"{name}:latest" for name in NAMES]
        assert server.loaded() == set()


def test_the_console_offers_models_that_are_not_loaded(models: Path) -> None:
    with serve(models) as server:
        listed = server.client.get("/v1/models").json()["data"]
        assert {entry["state"] for entry in listed} == {"not_loaded"}
        reports = server.client.get("/console/models.json").json()["models"]
        assert [report["name"] for report in reports] == list(NAMES)
        assert all(report["capabilities"] == ["embed", "rerank"] for report in reports)
        assert server.loaded() == set()


def test_what_is_only_known_of_loaded_models_says_how_one_is_loaded(models: Path) -> None:
    pages = {"/v1/accuracy/a": "message", "/info": "error"}
    with serve(models) as server:
        for path, field in pages.items():
            refusal = server.client.get(path)
            assert (refusal.status_code, server.loaded()) == (503, set())
            assert "`a` is not loaded" in refusal.json()[field]
        server.embed("a")
        assert {server.client.get(path).status_code for path in pages} == {200}


def test_settings_that_cannot_work_are_refused(models: Path) -> None:
    for wrong in (
        {"memory_budget_mib": 100},
        {"memory_budget_mib": 1000, "processes": 2},
        {"model_keep_alive_s": 5.0},
        {"admin_key_file": Path("keys")},
    ):
        with pytest.raises(InvalidConfig, match="memory_budget_mib"):
            ServerSettings(**wrong)
