"""A context in which the queue may change: it holds the lock, then reports the changed counts of texts."""

import logging
from collections.abc import Callable

from vecmill.batching.queue import Queue
from vecmill.hardware.budget import CoreBudget
from vecmill.values.observer import Observer

logger = logging.getLogger(__name__)


class Change:
    """A context that holds the lock and afterwards reports the changed counts of texts to the observer.

    An observer that raises must not keep requests that have ended from their answers, so its error is logged.

    All threads share one instance.
    """

    def __init__(self, budget: CoreBudget, queue: Queue, observer: Observer) -> None:
        self._lock = budget.lock
        self._counts = queue.counts
        self._reports = (
            observer.joined,
            observer.done,
            observer.failed,
            observer.expired,
            observer.cancelled,
        )
        self._reported = self._counts.changing

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        before, after = self._reported, self._counts.changing
        self._reported = after
        self._lock.release()
        if after != before:
            for report, old, new in zip(self._reports, before, after, strict=True):
                if new != old:
                    self._report(report, new - old)

    def _report(self, report: Callable[[int], None], texts: int) -> None:
        try:
            report(texts)
        except Exception:
            logger.exception("The observer failed.")
