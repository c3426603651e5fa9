"""The unknown model names that `--alias '*'` serves: their number, and the first of them in the log."""

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

# The memory for names is bounded, since clients choose the names.
MAX_LOGGED_NAMES = 100
MAX_LOGGED_CHARACTERS = 100


class UnknownNames:
    """A counter of requests with unknown model names. The first hundred names are logged once each."""

    def __init__(self, count: Callable[[], None]) -> None:
        """`count` is called for each request."""
        self._count = count
        self._logged: set[str] = set()

    def add(self, name: str, model: str) -> None:
        """Count a request for the unknown `name`, which the model called `model` answers."""
        self._count()
        shown = name[:MAX_LOGGED_CHARACTERS]
        if shown in self._logged or len(self._logged) >= MAX_LOGGED_NAMES:
            return
        self._logged.add(shown)
        logger.info("the model name %s is unknown, so %s answers (--alias '*')", ascii(shown), model)
        if len(self._logged) == MAX_LOGGED_NAMES:
            logger.info("further unknown model names are counted and not logged")
