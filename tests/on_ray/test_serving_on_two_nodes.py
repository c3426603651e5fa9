"""`vecmill ray serve` on two nodes: an address that other nodes do not reach is refused."""

import shutil
from pathlib import Path

import pytest

from on_ray import namespaces
from on_ray.two_nodes import RAY, TwoNodes

pytestmark = [pytest.mark.full, pytest.mark.alone]


def test_a_loopback_address_is_refused(tmp_path: Path) -> None:
    reason = namespaces.why_not()
    if reason is None and shutil.which(RAY / "vecmill") is None:
        reason = "needs .venv/ray, which `make test-all` makes"
    if reason:
        pytest.skip(reason)
    config, log = tmp_path / "vecmill.toml", tmp_path / "serve.log"
    config.write_text("[server]\nport = 7997\n", "utf-8")
    with TwoNodes(tmp_path) as nodes:
        command = nodes.drive(log, "ray", "serve", "--config", str(config))
        assert command.wait(300) == 2
    assert "The Ray cluster has 2 nodes, but on 127.0.0.1" in log.read_text("utf-8")
