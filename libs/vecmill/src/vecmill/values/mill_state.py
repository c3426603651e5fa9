"""The state of a mill, which programs and servers watch."""

from enum import StrEnum


class MillState(StrEnum):
    """The state of a mill."""

    LOADING = "loading"
    READY = "ready"
    DEGRADED = "degraded"  # a lane hangs or is dead; the other lanes go on, and the lane may come back
    LOST = "lost"  # no lane works and none can be replaced: every request fails until the process is replaced
    CLOSED = "closed"
