"""On two nodes: one is cut off or a replica dies, and the other node goes on answering within seconds."""

import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from on_ray import namespaces
from on_ray.two_nodes import HEAD, RAY, WORKER, TwoNodes
from support.tiny_models import save_tiny_bert

pytestmark = [pytest.mark.full, pytest.mark.alone]

PORT = 7997
NAMES = ("one", "two")
START_S = 240.0
# Ray itself gives up a node after about a minute.
ANSWER_S = 20.0
CONFIG = """
[server]
host = "0.0.0.0"
port = 7997
lame_duck_s = 1
access_log = false

[defaults]
cores = 1

[[models]]
model = "{folder}/one"

[[models]]
model = "{folder}/two"
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    """A cluster that serves two models, with a replica of each on both nodes."""
    reason = namespaces.why_not()
    if reason is None and shutil.which(RAY / "vecmill") is None:
        reason = "needs .venv/ray, which `make test-all` makes"
    if reason:
        pytest.skip(reason)
    for name in NAMES:
        save_tiny_bert(tmp_path / name)
    config, log = tmp_path / "vecmill.toml", tmp_path / "serve.log"
    config.write_text(CONFIG.format(folder=tmp_path), "utf-8")
    with TwoNodes(tmp_path, cores=2) as cluster:
        command = cluster.drive(log, "ray", "serve", "--config", str(config), "--replicas", "2")
        deadline = time.monotonic() + START_S
        while "vecmill serves with Ray" not in log.read_text("utf-8"):
            assert command.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < deadline, log.read_text("utf-8")
            time.sleep(0.5)
        yield cluster


def ask(nodes: TwoNodes, model: str) -> tuple[int, float]:
    """Return the status of a request to the head node, and its seconds."""
    body = json.dumps({"model": model, "input": ["a text"]}).encode()
    url = f"http://{nodes.address(HEAD)}:{PORT}/v1/embeddings"

    def send() -> tuple[int, float]:
        began = time.monotonic()
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, time.monotonic() - began
        except urllib.error.HTTPError as error:
            error.close()
            return error.code, time.monotonic() - began

    return nodes.call(send)


def ask_many(nodes: TwoNodes, count: int) -> list[tuple[int, float]]:
    """Send requests for both models from several clients."""
    with ThreadPoolExecutor(4) as clients:
        return list(clients.map(lambda index: ask(nodes, NAMES[index % 2]), range(count)))


def test_the_loss_of_a_node_leaves_a_router_and_a_replica_of_each_model(nodes: TwoNodes) -> None:
    before = ask_many(nodes, 40)
    assert {status for status, _ in before} == {200}
    nodes.kill_process(WORKER, "ServeReplica:vecmill:one")  # a process that ends is noticed at once
    died = ask_many(nodes, 40)
    print("after a death: longest", max(seconds for _, seconds in died))
    assert {status for status, _ in died} == {200}
    nodes.lose_worker()
    after = ask_many(nodes, 40)
    print("after the cut: longest", sorted(seconds for _, seconds in after)[-8:])
    assert {status for status, _ in after} == {200}
    assert max(seconds for _, seconds in after) < ANSWER_S
