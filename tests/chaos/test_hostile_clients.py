"""Hostile clients neither freeze the server nor fill its memory, and are closed on time."""

import pytest

from chaos.hostile_clients import FULL, SCENARIOS, SMALL, run_scenario

# A percentile of a second's requests says little on a busy machine, so the small run does not judge it.
RISE = "p99 of others, rise"


@pytest.mark.promise("slow-clients")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_few_hostile_clients(name: str) -> None:
    finding = run_scenario(name, SMALL)
    assert [sentence for sentence in finding.broken if not sentence.startswith(RISE)] == []


@pytest.mark.promise("slow-clients")
@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_many_hostile_clients(name: str) -> None:
    finding = run_scenario(name, FULL)
    print(finding.figures)
    assert finding.broken == []
