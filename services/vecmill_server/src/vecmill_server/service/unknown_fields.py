"""The report of request fields that the server does not know: a response header, a metric and log lines.

Names come from clients, so only names of a few plain characters are shown, and their number is limited.
"""

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from itertools import islice

from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics

logger = logging.getLogger(__name__)

MOST_SHOWN = 8
MOST_LOGGED = 100

_PLAIN_NAME = re.compile("[A-Za-z0-9_.-]{1,64}")


def list_names(names: Sequence[str]) -> bytes:
    """Return the value of the header `x-unknown-fields`, such as `encoding_formt, foo, +2`.

    The value has the first plain names, and the number of all other names after a plus sign.
    """
    shown = list(islice(_plain(names), MOST_SHOWN))
    others = len(names) - len(shown)
    return ", ".join([*shown, f"+{others}"] if others else shown).encode("ascii")


class UnknownFields:
    """The count of unknown fields, and a log line for each new name. Safe for any number of threads."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._logged: set[str] = set()

    def report(self, names: Sequence[str], route: str) -> None:
        """Report the unknown fields `names` of a request. `route` must be a name from the route table."""
        self._metrics.unknown_fields(route, len(names))
        for name in self._take_new(names):
            logger.warning("a request has the field %s, which is unknown and has no effect", name)

    def _take_new(self, names: Sequence[str]) -> list[str]:
        """Return the names that have not been logged, as many as may be logged."""
        with self._lock:
            room = MOST_LOGGED - len(self._logged)
            new = list(islice((name for name in _plain(names) if name not in self._logged), room))
            self._logged.update(new)
            return new


def _plain(names: Sequence[str]) -> Iterator[str]:
    return (name for name in names if _PLAIN_NAME.fullmatch(name))
