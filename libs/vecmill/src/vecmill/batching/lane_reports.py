"""Reports about lanes: their states for the observer, and lost, returned and replaced lanes for the log."""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from vecmill.batching.lane import Lane
from vecmill.values.observer import Observer

logger = logging.getLogger(__name__)


class LaneReports:
    """Reports about `lanes`, a list whose items may be replaced. Used by all threads.

    Call the methods without the lock of the lanes, except `note`.
    """

    def __init__(self, observer: Observer, lanes: Sequence[Lane]) -> None:
        self._observer = observer
        self._lanes = lanes
        self._notes: deque[str] = deque()
        self._order = threading.Lock()

    def note(self, message: str) -> None:
        """Keep a line for the log until `publish`. Call with the lock of the lanes held."""
        self._notes.append(message)

    def report(self, number: int) -> None:
        """Report the state of a lane. Whichever threads report, the last report is the current state."""
        with self._order:
            self._observer.lane(number, self._lanes[number].state)

    def publish(self) -> None:
        """Log the notes. If there are any, report the states of all lanes."""
        has_changes = bool(self._notes)
        while self._notes:
            with suppress(IndexError):  # another thread was faster
                logger.warning(self._notes.popleft())
        for lane in self._lanes if has_changes else ():
            self.report(lane.number)
