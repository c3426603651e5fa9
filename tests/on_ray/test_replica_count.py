"""The number of replicas follows the queued seconds of work, and never drops below the work that there is."""

from types import SimpleNamespace

import pytest

from vecmill_ray.serving.autoscaling import BUSY, MAX_BUSY, QUEUE_S, QueuedWork, count_replicas


@pytest.mark.parametrize(
    ("queued_s", "busy", "replicas"),
    [
        (0.0, 0.0, 1),  # idle
        (0.4, 0.9, 2),  # one replica, nearly always busy
        (0.5, 0.5, 1),  # just as much as a replica may have
        (0.6, 0.5, 2),
        (2.0, 1.0, 4),
        (0.0, 1.6, 2),  # two replicas whose queues are empty because there are two
        (0.0, 0.7, 1),
    ],
)
def test_replicas_for_a_load(queued_s: float, busy: float, replicas: int) -> None:
    assert count_replicas(queued_s, busy, 0.5) == replicas


def test_a_replica_that_was_added_for_a_steady_load_stays() -> None:
    """Whatever the load of `n` replicas at their limit, the policy does not remove one of them."""
    for replicas in range(1, 50):
        assert count_replicas(0.0, replicas * MAX_BUSY, 0.5) == replicas


def test_the_metrics_of_all_replicas_are_added() -> None:
    context = SimpleNamespace(
        aggregated_metrics={QUEUE_S: {"a": 0.5, "b": 0.7}, BUSY: {"a": 1.0, "b": 1.0}}, target_num_replicas=2
    )
    assert QueuedWork(0.5)(context) == (3, {})


@pytest.mark.parametrize("metrics", [None, {}, {QUEUE_S: {}, BUSY: {}}])
def test_without_metrics_the_number_stays(metrics: object) -> None:
    context = SimpleNamespace(aggregated_metrics=metrics, target_num_replicas=3)
    assert QueuedWork(0.5)(context) == (3, {})
