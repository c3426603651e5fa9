"""The labels of metrics stand where metrics are defined, and are the words of the states that they name."""

from vecmill_server.batches.objects import BatchStatus
from vecmill_server.telemetry.metrics.definitions import BATCH_STATUSES


def test_the_states_of_batches() -> None:
    assert tuple(BatchStatus) == BATCH_STATUSES
