"""`vecmill ray embed` on a cluster of two nodes with a network between them: each row once, always."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from on_ray import namespaces
from on_ray.bulk_scenarios import SCENARIOS, BulkInput, play
from on_ray.two_nodes import RAY, TwoNodes

TEXTS, BLOCK_ROWS = 3_000, 50

pytestmark = [pytest.mark.full, pytest.mark.alone]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = namespaces.why_not()
    if reason is None and shutil.which(RAY / "vecmill") is None:
        reason = "needs .venv/ray, which `make test-all` makes"
    if reason:
        pytest.skip(reason)
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def nodes(folder: Path) -> Iterator[TwoNodes]:
    with TwoNodes(folder) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def texts(folder: Path, nodes: TwoNodes) -> BulkInput:
    return BulkInput.make(folder, TEXTS, BLOCK_ROWS, nodes.environment())


# First, because a node that was cut off for long is not there at once.
def test_local_paths_are_refused_with_several_nodes(nodes: TwoNodes, texts: BulkInput, folder: Path) -> None:
    log = folder / "driver-local.log"
    command = nodes.drive(log, "ray", "embed", str(folder / "texts.jsonl"), "-o", str(folder / "vectors"))
    assert command.wait(300) == 2
    assert f"{folder / 'texts.jsonl'} is a local path" in log.read_text("utf-8")
    assert not (folder / "vectors").exists()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_row_is_there_once(nodes: TwoNodes, texts: BulkInput, folder: Path, scenario: str) -> None:
    outcome = play(nodes, texts, folder, scenario, limit_s=900)
    assert (outcome.rows, outcome.lost, outcome.doubled) == (TEXTS, 0, 0)
    assert outcome.max_difference < 1e-6
