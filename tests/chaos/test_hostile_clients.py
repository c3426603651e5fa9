"""Hostile clients neither freeze the server nor fill its memory, and are closed on time."""

from dataclasses import replace

import pytest

from chaos.hostile_clients import FULL, SCENARIOS, SMALL, run_scenario


@pytest.mark.linux
@pytest.mark.promise("slow-clients")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_few_hostile_clients(name: str) -> None:
    finding = run_scenario(name, SMALL)
    print(finding.figures)
    assert finding.broken == []


@pytest.mark.promise("slow-clients")
@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_many_hostile_clients(name: str) -> None:
    finding = run_scenario(name, FULL)
    print(finding.figures)
    assert finding.broken == []


def test_a_server_that_waits_for_its_slow_clients_is_found() -> None:
    scale = replace(SMALL, silent=10, readers=1)
    finding = run_scenario("slow", scale, plant="patience")
    assert any(sentence.startswith("others certainly slower") for sentence in finding.broken), finding
