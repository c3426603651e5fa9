"""The number of replicas of a model, from its queued seconds of work. Pure.

Each replica reports two numbers to Serve: `queue_s`, the estimated seconds to compute its waiting texts, and
`busy`, the fraction of the time in which its engine computed.

Rules:
1. There is a replica for each `queue_s` seconds of queued work.
2. There are enough replicas that each computes for at most `MAX_BUSY` of the time. So Serve adds a replica to
   busy replicas even without a queue, and keeps the replica that has just emptied the queue.
3. Serve applies the minimum, the maximum and the delays.

The module is copied to Serve's controller, so it imports nothing of vecmill.
"""

import math
from collections.abc import Mapping
from typing import Any

QUEUE_S = "queue_s"
BUSY = "busy"

# Queues grow without limit as the busy fraction comes close to 1.
MAX_BUSY = 0.8


class QueuedWork:
    """The autoscaling policy of one deployment, called by Serve's controller."""

    def __init__(self, queue_s: float) -> None:
        """`queue_s` are the seconds of queued work for each replica."""
        self._queue_s = queue_s

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas for the metrics in Serve's `AutoscalingContext`, and no state."""
        metrics = context.aggregated_metrics or {}
        queued_s, busy = total(metrics, QUEUE_S), total(metrics, BUSY)
        if queued_s is None or busy is None:
            return context.target_num_replicas, {}
        return count_replicas(queued_s, busy, self._queue_s), {}


def count_replicas(queued_s: float, busy: float, queue_s: float) -> int:
    """Return the number of replicas for the sums of all replicas: queued seconds, and busy fractions."""
    # Sums of fractions can be slightly above the exact number.
    return max(1, math.ceil(queued_s / queue_s - 1e-9), math.ceil(busy / MAX_BUSY - 1e-9))


def total(metrics: Mapping[str, Mapping[Any, float]], name: str) -> float | None:
    """Return the sum of a metric over all replicas, `None` if no replica has reported the metric."""
    values = metrics.get(name)
    return sum(values.values()) if values else None
