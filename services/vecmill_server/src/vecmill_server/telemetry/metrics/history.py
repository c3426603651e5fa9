"""The metrics of the last minutes, so that a page that is opened shows what was before.

How it works. Requests touch the history, which then reads the page of the metrics, at most every `EVERY_S`
seconds; while nothing comes, nothing runs. A page that is written for a scrape is kept as it is, so that
nothing is written twice. Of a page the history keeps the series that the console draws, and of these the ones
that differ from the reading before, and the names of those that are gone, such as those of an unloaded model.
The first reading is whole: a reading that is dropped passes its series on to the next one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from vecmill.values.clock import Clock
from vecmill.values.own_thread import call_in_thread
from vecmill.values.shared_task import share_task
from vecmill_server.base.json_io import encode_json

EVERY_S = 5.0
KEPT_S = 600.0

# The beginnings of the series that are kept.
SERIES = (
    "vecmill_http_requests_total",
    "vecmill_http_request_duration_seconds_bucket",
    "vecmill_inference_seconds_sum",
    "vecmill_inference_seconds_count",
    "vecmill_tokens_total",
    "vecmill_computed_tokens_total",
    "vecmill_batch_texts_sum",
    "vecmill_lane_state",
    "vecmill_model_info",
    "vecmill_queue_seconds",
    "vecmill_queue_texts",
    "vecmill_queue_wait_seconds_bucket",
    "vecmill_queue_wait_seconds_count",
    "vecmill_queue_wait_seconds_sum",
    "vecmill_memory_limit_bytes",
    "vecmill_rejections_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
)

# The value of a series that a page has no more.
GONE = "gone"

Read = Callable[[], Awaitable[bytes]]


@dataclass(slots=True)
class _Reading:
    at: float
    series: dict[str, str]  # the name with its labels, and the value


class MetricsHistory:
    """The readings of the last `KEPT_S` seconds. Used from one event loop; `clock` tells their age."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read: Read | None = None
        self.due_at = float("-inf")  # of the next reading
        self._sampling: asyncio.Task[None] | None = None
        self._readings: deque[_Reading] = deque()
        self._latest: dict[str, str] = {}

    def read_from(self, read: Read) -> None:
        """Take the pages of the metrics in Prometheus' text format from `read`."""
        self._read = read

    def touch(self) -> None:
        """Begin a reading if one is due. Called at the end of each request from `due_at` on."""
        if self._read is not None and self._is_due():
            self._begin(self._read)

    async def observe(self, read: Read) -> bytes:
        """Return the page that `read` returns, and keep it if a reading is due. Raises what `read` raises."""
        return await (share_task(self._begin(read)) if self._is_due() else read())

    def _is_due(self) -> bool:
        is_reading = self._sampling is not None and not self._sampling.done()  # readings stay in their order
        return not is_reading and self._clock() >= self.due_at

    def _begin(self, read: Read) -> asyncio.Future[bytes]:
        now = self._clock()
        self.due_at = now + EVERY_S
        page = asyncio.ensure_future(read())
        self._sampling = asyncio.ensure_future(self._sample(page, now))
        # A page that cannot be read is missing in the history, and whoever asks for it gets the error.
        self._sampling.add_done_callback(lambda sampling: sampling.cancelled() or sampling.exception())
        return page

    async def write(self) -> bytes:
        """Return the readings as JSON: `[{"age_s": 12.5, "metrics": "..."}]`, the oldest first.

        The first has all series in Prometheus' text format, the others those that changed. A series that the
        page has no more has the value `gone`.
        """
        now = self._clock()
        readings = [(now - one.at, list(one.series.items())) for one in self._readings]
        return await call_in_thread("vecmill-history", lambda: _write(readings))

    async def _sample(self, reading: Awaitable[bytes], began_at: float) -> None:
        page = await reading
        found = await call_in_thread("vecmill-history", lambda: _pick_series(page))
        changed = {name: value for name, value in found.items() if self._latest.get(name) != value}
        changed |= dict.fromkeys(self._latest.keys() - found.keys(), GONE)
        self._latest = found
        self._readings.append(_Reading(began_at, changed))
        while len(self._readings) > 1 and began_at - self._readings[0].at > KEPT_S:
            oldest = self._readings.popleft()
            self._readings[0].series = oldest.series | self._readings[0].series


def _pick_series(page: bytes) -> dict[str, str]:
    lines = (line for line in page.decode("utf-8").splitlines() if line.startswith(SERIES))
    return {name: value for name, _, value in (line.rpartition(" ") for line in lines)}


def _write(readings: list[tuple[float, list[tuple[str, str]]]]) -> bytes:
    return encode_json(
        [
            {
                "age_s": round(age_s, 3),
                "metrics": "\n".join(f"{name} {value}" for name, value in series),
            }
            for age_s, series in readings
        ]
    )
