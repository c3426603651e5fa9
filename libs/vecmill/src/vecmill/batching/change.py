"""A context in which the scheduler may change: it holds the lock, and then reports what has changed."""

import logging
from collections.abc import Callable

from vecmill.batching.ticket import Counts
from vecmill.hardware.budget import CoreBudget
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill.values.observer import Observer

logger = logging.getLogger(__name__)


class Change:
    """A context that holds the lock and afterwards reports the changed counts of texts to the observer.

    All threads share one instance.
    """

    def __init__(self, budget: CoreBudget, counts: Counts, observer: Observer) -> None:
        self.budget = budget
        self.observer = observer
        self._lock = budget.lock
        self._counts = counts
        self._reports = (
            observer.joined,
            observer.done,
            observer.failed,
            observer.expired,
            observer.cancelled,
        )
        self._reported = (0,) * len(self._reports)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        before, counts = self._reported, self._counts
        after = (counts.joined, counts.done, counts.failed, counts.expired, counts.cancelled)
        self._reported = after
        self._lock.release()
        if after != before:
            for report, old, new in zip(self._reports, before, after, strict=True):
                if new != old:
                    tell(report, new - old)


def tell(report: Callable[..., None], *arguments: object) -> None:
    """Call a method of an observer, without a lock. If it raises, the error is logged.

    An observer that raises must not keep requests that have ended from their answers.
    """
    try:
        report(*arguments)
    except INTERRUPTIONS:
        raise
    except BaseException:
        logger.exception("The observer failed.")
