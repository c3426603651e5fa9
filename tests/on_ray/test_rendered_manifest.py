"""The RayService of `vecmill deploy render` on two nodes: what KubeRay does with it, done by hand."""

import json
import shutil
import time
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import tomli_w
import yaml

from deployment.configurations import STRICT, render_text
from on_ray import namespaces
from on_ray.two_nodes import HEAD, RAY, WORKER, TwoNodes
from support.agreement import offered
from vecmill.values.engine_plan import Precision
from vecmill_server.deploy.command import Target

pytestmark = [pytest.mark.full, pytest.mark.alone]

KEY, TOKEN = "a-key-of-search", "0123456789abcdef" * 4
APPLICATIONS = "/api/serve/applications/"
START_S = 600.0


def require_two_nodes() -> None:
    """Skip the test where there are no namespaces or no Ray."""
    reason = namespaces.why_not()
    if reason is None and shutil.which(RAY / "vecmill") is None:
        reason = "needs .venv/ray, which `make test-all` makes"
    if reason:
        pytest.skip(reason)


def variables_of(cluster: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return what the pods have in their environment, with the token that KubeRay adds for `authOptions`."""
    containers = [
        group["template"]["spec"]["containers"][0]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    ]
    found = [{each["name"]: each["value"] for each in container["env"]} for container in containers]
    assert all(each == found[0] for each in found)
    assert cluster["authOptions"] == {"mode": "token"}
    # As the Secret that `envFrom` names: what OpenTelemetry reads reaches the replicas.
    secret = {"OTEL_TRACES_EXPORTER": "none"}
    own = {"VECMILL_CACHE_DIR": str(folder / "cache"), "HF_HOME": str(folder / "hub")}
    return {**found[0], **own, **secret, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}


def write_config(folder: Path, text: str) -> Path:
    """Write the file of the ConfigMap, with the key file and the precision that this machine has."""
    document = tomllib.loads(text)
    assert document["models"][0]["precision"] == "int8"
    if Precision.INT8 not in offered("onnx"):
        document["models"][0]["precision"] = "fp32"
    (folder / "keys").write_text(f"search {KEY}\n", "utf-8")
    assert document["server"]["api_key_file"] == "/run/secrets/vecmill/keys"
    document["server"]["api_key_file"] = str(folder / "keys")
    (folder / "there.toml").write_text(tomli_w.dumps(document), "utf-8")
    return folder / "there.toml"


def ask(
    nodes: TwoNodes, method: str, url: str, headers: Mapping[str, str] | None = None, body: Any = None
) -> httpx.Response:
    """Send a request from a host that reaches both nodes."""

    def send() -> httpx.Response:
        return httpx.request(method, url, headers=headers, json=body, timeout=60)

    return nodes.call(send)


def wait_for_servers(nodes: TwoNodes, dashboard: str, headers: Mapping[str, str], folder: Path) -> None:
    """Return when Serve runs the application, as KubeRay's operator asks it."""
    deadline = time.monotonic() + START_S
    state: Any = None
    while time.monotonic() < deadline:
        answer = ask(nodes, "GET", f"{dashboard}{APPLICATIONS}", headers)
        state = answer.json()["applications"].get("vecmill", {})
        if state.get("status") == "RUNNING":
            return
        assert state.get("status") not in ("DEPLOY_FAILED", "UNHEALTHY"), json.dumps(state, indent=1)
        time.sleep(1)
    raise AssertionError(f"{json.dumps(state, indent=1)}; see the logs in {folder}")


def wait_for_node(nodes: TwoNodes, url: str) -> None:
    """Return when the readiness probe of a node succeeds: its proxy may start after the application."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if ask(nodes, "GET", url).status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"{url} is not ready")


def test_the_rendered_service_serves_on_two_nodes_and_asks_for_the_token(tmp_path: Path) -> None:
    require_two_nodes()
    files = render_text(tmp_path, Target.RAY, STRICT).files
    spec = yaml.safe_load(files["ray-service.yaml"])["spec"]
    serve = yaml.safe_load(spec["serveConfigV2"])
    (application,) = serve["applications"]
    assert application["args"]["replicas"] == 2
    config = yaml.safe_load(files["ray-config.yaml"])["data"]["vecmill.toml"]
    application["args"]["config"] = str(write_config(tmp_path, config))
    application["args"]["nodes"] = 2  # not a head and four workers
    variables = variables_of(spec["rayClusterConfig"], tmp_path)
    with TwoNodes(tmp_path, cores=2, has_dashboard=True, variables=variables) as nodes:
        dashboard = f"http://{nodes.address(HEAD)}:8265"
        with_token = {"authorization": f"Bearer {TOKEN}"}
        for headers, status in (({}, 401), ({"authorization": "Bearer other"}, 403), (with_token, 200)):
            answer = ask(nodes, "PUT", f"{dashboard}{APPLICATIONS}", headers, serve)
            assert answer.status_code == status, answer.text
        wait_for_servers(nodes, dashboard, with_token, tmp_path)
        groups = spec["rayClusterConfig"]
        for host, group in ((HEAD, groups["headGroupSpec"]), (WORKER, groups["workerGroupSpecs"][0])):
            (container,) = group["template"]["spec"]["containers"]
            ready, alive = (
                f"http://{nodes.address(host)}:{probe['port']}{probe['path']}"
                for probe in (container[f"{kind}Probe"]["httpGet"] for kind in ("readiness", "liveness"))
            )
            wait_for_node(nodes, ready)
            assert ask(nodes, "GET", alive).status_code == 200, alive
            check_node(nodes, nodes.address(host))


def check_node(nodes: TwoNodes, address: str) -> None:
    """Check that both models answer through the proxy of a node, and only to those who have a key."""

    def use() -> None:
        keys = {"authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=f"http://{address}:8000", headers=keys, timeout=120) as client:
            for model in ("docs", "queries"):
                response = client.post("/v1/embeddings", json={"input": "a short text", "model": model})
                assert response.status_code == 200, response.text
                assert response.json()["model"] == model
            listed = {each["id"] for each in client.get("/v1/models").json()["data"]}
            assert listed >= {"docs", "queries"}
            refused = client.get("/v1/models", headers={"authorization": "Bearer other"})
            assert refused.status_code == 401

    nodes.call(use)
