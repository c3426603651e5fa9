"""On a real cluster: a model without a replica, a second command, requests of web pages, the end."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from support.ray_server import RAY, environment, ray_server, require_ray
from support.server import MODEL, LiveServer, free_port
from support.tiny_models import save_tiny_bert

pytestmark = pytest.mark.full

# Part of a process title, so it must differ from that of any other replica on this machine.
DOOMED = f"doomed-{os.getpid()}"
CONFIG = """
access_log = false
lame_duck_s = 1
cors_origin = ["https://app.example.com"]

[defaults]
timeout_s = 3

[[models]]
model = "{model}"

[[models]]
model = "{doomed}"
"""
PATIENCE_S = 240.0
REMOVE = """
import ray, sys
from ray import serve
ray.init(address=sys.argv[1], log_to_driver=False)
serve.delete("vecmill")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_ray()
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[LiveServer]:
    """Two models behind a router."""
    doomed = folder / DOOMED
    save_tiny_bert(doomed)
    with ray_server(folder, CONFIG.format(model=MODEL, doomed=doomed)) as running:
        yield running


def post(served: LiveServer, model: str, **headers: str) -> httpx.Response:
    body = {"model": model, "input": ["a text"]}
    return httpx.post(f"{served.url}/v1/embeddings", json=body, headers=headers, timeout=60)


def kill_replica(name: str) -> None:
    """Kill the process of the replica of a deployment."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"ServeReplica:vecmill:{name}" in (process / "cmdline").read_text("utf-8", "replace"):
                os.kill(int(process.name), signal.SIGKILL)


def test_a_web_page_reaches_the_models(served: LiveServer) -> None:
    page = {"origin": "https://app.example.com", "user-agent": "Mozilla/5.0"}
    assert post(served, DOOMED, **page).status_code == 200
    listed = httpx.get(f"{served.url}/v1/models", headers=page, timeout=60)
    assert [entry["id"] for entry in listed.json()["data"]] == [MODEL, DOOMED]


def test_a_second_command_is_refused(served: LiveServer, folder: Path) -> None:
    arguments = served.process.args
    assert isinstance(arguments, list)
    second = subprocess.run(
        arguments, env=environment(folder), capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert second.returncode != 0
    assert "already serves vecmill" in second.stderr
    assert post(served, MODEL).status_code == 200


def test_a_request_ends_while_the_model_has_no_replica(served: LiveServer, folder: Path) -> None:
    # The replicas that Serve starts next do not find the model.
    (folder / DOOMED).rename(folder / "elsewhere")
    kill_replica(DOOMED)
    deadline = time.monotonic() + PATIENCE_S
    while (answer := post(served, DOOMED)).status_code == 200:
        assert time.monotonic() < deadline
    # The request that was in the replica, or in none.
    assert answer.status_code == 503
    limited = post(served, DOOMED, **{"x-request-timeout-ms": "100"})
    assert limited.status_code == 504
    unlimited = post(served, DOOMED)
    assert unlimited.status_code == 503
    assert "has had no replica for 3 seconds" in unlimited.json()["error"]["message"]
    assert post(served, MODEL).status_code == 200


def test_the_command_ends_if_its_models_are_removed(served: LiveServer, folder: Path) -> None:
    arguments = served.process.args
    assert isinstance(arguments, list)
    line = [f"{RAY}/bin/python", "-c", REMOVE, arguments[arguments.index("--address") + 1]]
    subprocess.run(line, env=environment(folder), check=True, timeout=PATIENCE_S)
    assert served.process.wait(PATIENCE_S) != 0
    assert "Another program has removed the models" in served.log.read_text("utf-8")


def test_a_cluster_that_cannot_be_reached_is_an_error_message(tmp_path: Path) -> None:
    require_ray()
    config = tmp_path / "vecmill.toml"
    config.write_text("", "utf-8")
    # One attempt; by default Ray makes 20, of 40 seconds each.
    variables = {**environment(tmp_path), "RAY_gcs_server_port_wait_time_s": "1"}
    address = f"127.0.0.1:{free_port()}"
    line = [f"{RAY}/bin/vecmill", "ray", "serve", "--config", str(config), "--address", address]
    ended = subprocess.run(
        line, env=variables, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert ended.returncode == 2
    assert f"The Ray cluster at {address} cannot be reached: " in ended.stderr
    assert "Traceback" not in ended.stderr
