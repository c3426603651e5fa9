"""The servers of the rendered files, started as each target starts them: with keys, traces and two models."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import yaml

from chart.rendering import HELM, container_of, run_helm, select
from deployment.configurations import LARGE, STRICT, render_text, write_rendering
from deployment.programs import needs_program
from support.agreement import offered
from support.collector import Collector, collect
from support.server import free_port, stop_server, wait_until_ready
from support.source_tree import ROOT
from vecmill.values.engine_plan import Precision
from vecmill_server.cli.container_health import find_target
from vecmill_server.deploy.command import Target

pytestmark = pytest.mark.full

START_S = 300.0
KEY = "a-key-of-search"
# The cache is a folder of the test, which is the same for all targets: they prepare a model once.
CACHE = "/var/cache/vecmill"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collect() as running:
        yield running


@pytest.fixture(autouse=True)
def needs_int8() -> None:
    """Skip the test where the first model of `STRICT` cannot be served."""
    if Precision.INT8 not in offered("onnx"):
        pytest.skip("no int8 on this processor")


def write_keys(folder: Path) -> Path:
    """Write the key file that the configuration names from its own folder."""
    (folder / "keys").write_text(f"search {KEY}\n", "utf-8")
    return folder / "keys"


def bare_environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that knows nothing but its sources and these values."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HF_HUB_OFFLINE": "1", "OTEL_BSP_SCHEDULE_DELAY": "100", **values}


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Run a server, whose port is in VECMILL_PORT, until the block ends. Yields its URL once it is ready."""
    log, url = folder / "server.log", f"http://127.0.0.1:{environment['VECMILL_PORT']}"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=bare_environment(environment), stdout=output, stderr=output)
    try:
        wait_until_ready(url, process, log, deadline=time.perf_counter() + START_S)
        yield url
    finally:
        stop_server(process)
    assert process.returncode == 0, log.read_text("utf-8")


def check_answers(client: httpx.Client) -> None:
    """Check that both models answer those who have the key, each in its precision."""
    vectors = []
    for model in ("docs", "queries"):
        response = client.post("/v1/embeddings", json={"input": "a short text", "model": model})
        assert response.status_code == 200, response.text
        assert response.json()["model"] == model
        vectors.append(np.array(response.json()["data"][0]["embedding"]))
    cosine = float(vectors[0] @ vectors[1])
    assert 0.99 < cosine < 1 - 1e-7  # int8 and fp32 of the same model
    refused = client.get("/v1/models", headers={"authorization": "Bearer another"})
    assert refused.status_code == 401


def client_of(url: str) -> httpx.Client:
    retried = httpx.HTTPTransport(retries=5)
    return httpx.Client(
        base_url=url, transport=retried, headers={"authorization": f"Bearer {KEY}"}, timeout=START_S
    )


def check_traces(collector: Collector) -> None:
    spans = collector.wait_for("POST /v1/embeddings", count=2)
    assert {span.resource["service.name"] for span in spans} == {"vecmill"}


def test_the_container_of_compose_serves(tmp_path: Path, cache: Path, collector: Collector) -> None:
    keys = write_keys(tmp_path)
    files = render_text(tmp_path, Target.COMPOSE, STRICT).files
    composed = yaml.safe_load(files["compose.yaml"])
    assert composed["secrets"]["keys"]["file"] == str(keys)
    container = composed["services"]["vecmill"]
    (tmp_path / "there.toml").write_text(files["vecmill.toml"], "utf-8")
    there = {
        CACHE: str(cache),
        "/run/secrets/keys": str(keys),
        "/etc/vecmill/vecmill.toml": str(tmp_path / "there.toml"),
    }
    shell = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    passed = {
        name: shell.get(name) if value is None else move(value, there)
        for name, value in container["environment"].items()
    }
    environment = {name: value for name, value in passed.items() if value is not None}
    environment |= {"VECMILL_HOST": "127.0.0.1", "VECMILL_PORT": str(free_port())}
    dockerfile = (ROOT / "docker/Dockerfile").read_text("utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT \[(.*)\]$", dockerfile, re.MULTILINE)
    assert entry == '"vecmill", "serve"'
    program = [str(Path(sys.executable).parent / "vecmill"), "serve"]
    command = [*program, *(move(word, there) for word in container["command"])]
    with running(command, environment, tmp_path) as url, client_of(url) as client:
        check_answers(client)
        check_traces(collector)
        assert find_target(command[1:], environment).is_ready()  # the health check of the container


def move(text: str, places: Mapping[str, str]) -> str:
    for before, after in places.items():
        text = text.replace(before, after)
    return text


@pytest.mark.skipif(not HELM.exists(), reason="helm is not installed: run `make chart`")
@pytest.mark.parametrize("target", [Target.HELM, Target.TERRAFORM])
def test_the_pod_of_the_chart_serves(
    tmp_path: Path, cache: Path, collector: Collector, target: Target
) -> None:
    keys = write_keys(tmp_path)
    write_rendering(tmp_path / "out", render_text(tmp_path, target, STRICT))
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({"env": {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}}), "utf-8")
    values = ("--values", tmp_path / "out/values-vecmill.yaml", "--values", own)
    done = run_helm("template", "vecmill", tmp_path / "out/vecmill", *values)
    assert done.returncode == 0, done.stderr
    manifests = tuple(each for each in yaml.safe_load_all(done.stdout) if each)
    deployment = select(manifests, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    container = container_of(deployment)
    (config,) = [each for each in manifests if "vecmill.toml" in each.get("data", {})]
    (tmp_path / "there.toml").write_text(config["data"]["vecmill.toml"], "utf-8")
    there = {
        CACHE: str(cache),
        "/run/secrets/vecmill/keys": str(keys),
        "/etc/vecmill/vecmill.toml": str(tmp_path / "there.toml"),
    }
    environment = {each["name"]: move(each.get("value", "1"), there) for each in container["env"]}
    environment |= {"VECMILL_HOST": "127.0.0.1", "VECMILL_PORT": str(free_port())}
    program, *words = container["command"]
    command = [str(Path(sys.executable).parent / program), *(move(word, there) for word in words)]
    with running(command, environment, tmp_path) as url, client_of(url) as client:
        check_answers(client)
        check_traces(collector)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert client.get(container[probe]["httpGet"]["path"]).status_code == 200


@contextmanager
def service_of_systemd(
    folder: Path, text: str, cache: Path, *variables: str, path: str = ""
) -> Iterator[httpx.Client]:
    """Run the command of the unit on a socket that systemd's program opens, until the block ends."""
    files = render_text(folder, Target.SYSTEMD, text).files
    there = folder / "there.toml"
    there.write_text(files["vecmill.toml"], "utf-8")
    (start,) = re.findall(r"^ExecStart=(.*)$", files["vecmill.service"], re.MULTILINE)
    command = start.replace("/etc/vecmill/vecmill.toml", str(there)).split()
    (credential,) = re.findall(r"^LoadCredential=keys:(.*)$", files["vecmill.service"], re.MULTILINE)
    assert credential == str(folder / "keys")
    named = re.findall(r"^Environment=(.*)$", files["vecmill.service"], re.MULTILINE)
    set_variables = [each.replace("%C/vecmill", str(cache)).replace("%d", str(folder)) for each in named]
    port = free_port()
    options = [f"--setenv={each}" for each in ("PYTHONPATH", *set_variables, *variables)]
    activated = ["systemd-socket-activate", f"--listen=127.0.0.1:{port}", *options]
    with subprocess.Popen([*activated, *command], stderr=subprocess.DEVNULL) as process:
        try:
            with client_of(f"http://127.0.0.1:{port}{path}") as client:
                yield client
        finally:
            process.terminate()
        assert process.wait(timeout=60) == 0


@needs_program("systemd-socket-activate", "systemd")
def test_the_service_serves_on_the_socket_that_systemd_opens(tmp_path: Path) -> None:
    write_keys(tmp_path)
    text = LARGE.partition("[[models]]")[0].replace("/etc/vecmill/keys", str(tmp_path / "keys"))
    text += f"\n[deploy]\nprogram ={LARGE.partition('program =')[2]}"
    with service_of_systemd(tmp_path, text, tmp_path / "cache", path="/embed") as client:
        response = client.post("/v1/embeddings", json={"input": "hello"})
        assert response.status_code == 200, response.text
        assert client.get("/v1/models", headers={"authorization": "Bearer b"}).status_code == 401
    assert (tmp_path / "cache/prepared").is_dir()


@needs_program("systemd-socket-activate", "systemd")
def test_the_service_serves_with_traces_and_a_reduced_precision(
    tmp_path: Path, cache: Path, collector: Collector
) -> None:
    write_keys(tmp_path)
    variables = (f"OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}", "OTEL_BSP_SCHEDULE_DELAY=100")
    with service_of_systemd(tmp_path, STRICT, cache, *variables) as client:
        check_answers(client)
        check_traces(collector)
