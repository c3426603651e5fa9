"""Floods of cheap requests keep probes waiting for a quarter of a second at most."""

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from chaos.floods import FLOODS, FULL, KEY, LONGEST_GAP_S, SMALL, Scale, flooded_server, run_flood
from support.http_server import wait_until
from support.livez_gap import livez_gap
from support.server import LiveServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with flooded_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.mark.alone
@pytest.mark.promise("loop-responsive")
@pytest.mark.parametrize("scale", [SMALL, pytest.param(FULL, marks=pytest.mark.full)], ids=["small", "full"])
@pytest.mark.parametrize("name", FLOODS)
def test_probes_are_answered_during_a_flood(server: LiveServer, name: str, scale: Scale) -> None:
    finding = run_flood(server, FLOODS[name], scale)
    print(finding)
    assert finding.statuses.keys() <= FLOODS[name].statuses
    assert finding.statuses.total() == scale.connections * scale.requests
    assert finding.gap_s < LONGEST_GAP_S


@pytest.mark.alone
@pytest.mark.promise("loop-responsive")
@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_probes_are_answered_while_a_large_key_file_is_read(server: LiveServer, count: int) -> None:
    path = server.log.parent / "keys"
    with httpx.Client(base_url=server.url) as client:

        def is_known(key: str) -> bool:
            return client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200

        assert is_known(KEY)
        digests = (hashlib.sha256(str(number).encode()).hexdigest() for number in range(count))
        lines = [f"first {KEY}"] + [
            f"owner-{number} sha256:{digest}" for number, digest in enumerate(digests)
        ]
        with livez_gap(int(server.url.rpartition(":")[2])) as gap:
            path.write_text("\n".join(lines))
            wait_until(lambda: is_known(str(count - 1)))
    assert gap.beyond_control_s < LONGEST_GAP_S
