"""Hostile clients neither freeze the server nor fill its memory, and are closed on time."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from chaos.hostile_clients import (
    FULL,
    SCENARIOS,
    SMALL,
    Attacked,
    Finding,
    Scale,
    attacked_server,
    server_for,
    slow_clients,
)


@pytest.fixture(scope="module")
def control_port() -> Iterator[int]:
    """A server that no hostile client visits."""
    with server_for(SMALL) as (port, _):
        yield port


@pytest.fixture(scope="module")
def attacked(control_port: int) -> Iterator[Attacked]:
    """One server for all scenarios: what one leaves behind, the next one meets."""
    with attacked_server(SMALL, control_port) as server:
        yield server


def assert_kept(name: str, server: Attacked, scale: Scale) -> None:
    finding: Finding = asyncio.run(SCENARIOS[name](server, scale))  # type: ignore[arg-type]
    print(finding.figures)
    assert finding.broken == []


@pytest.mark.linux
@pytest.mark.promise("slow-clients")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_few_hostile_clients(attacked: Attacked, name: str) -> None:
    assert_kept(name, attacked, SMALL)


@pytest.mark.promise("slow-clients")
@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_many_hostile_clients(control_port: int, name: str) -> None:
    with attacked_server(FULL, control_port) as server:
        assert_kept(name, server, FULL)


def test_a_server_that_waits_for_its_slow_clients_is_found(control_port: int) -> None:
    # Measured for as long as the slow reader stays anyway: on a busy machine few requests prove nothing.
    scale = replace(SMALL, silent=10, readers=1, senders=15, beside_s=2.0, body_timeout_s=2.5)
    with server_for(scale, "patience") as (port, _):
        finding = asyncio.run(slow_clients(port, control_port, scale))
    assert any(sentence.startswith("others certainly slower") for sentence in finding.broken), finding
