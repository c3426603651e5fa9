"""Which batches are worked on: a few at a time, the oldest first, from the start of the server to its end.

Checking inputs, answering lines, and ending what has no more lines to answer have places of their own, so
that a file that cannot be read is known soon, and a batch that waits can be cancelled, however long others
take.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from vecmill_server.batches.records import BatchStatus, LineProblem
from vecmill_server.batches.store import Store
from vecmill_server.batches.work import Workshop, fail, validate, work_on

logger = logging.getLogger(__name__)

VALIDATIONS_AT_ONCE = 1
BATCHES_AT_ONCE = 4
ENDINGS_AT_ONCE = 4
# Files whose time has come are looked for so often; and so is everything else, should a call have been
# missed.
LOOK_S = 60.0
# After an error that nobody foresaw, such as a full disk.
REST_S = 30.0

GONE = LineProblem(
    "file_gone", "A file of this batch is gone from the server's disk. Upload it and begin again."
)

Find = Callable[[Store], list[str]]
Job = Callable[[Workshop, str], Awaitable[None]]


class Jobs:
    """Runs what is open. Use from one event loop."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._tasks: list[asyncio.Task[None]] = []
        busy = set[str]()
        self._crews = (
            _Crew(shop, _find_unchecked, validate, VALIDATIONS_AT_ONCE, busy),
            _Crew(shop, _find_unanswered, work_on, BATCHES_AT_ONCE, busy),
            _Crew(shop, lambda store: store.ending_ids(shop.now), work_on, ENDINGS_AT_ONCE, busy),
        )

    def start(self) -> None:
        """Go on with what is open."""
        self._tasks = [asyncio.create_task(crew.run(self.look)) for crew in self._crews]
        self._tasks.append(asyncio.create_task(self._delete_expired()))

    def look(self) -> None:
        """Something has changed: a batch was made, or is in another state."""
        for crew in self._crews:
            crew.news.set()

    async def stop(self) -> None:
        """Leave everything where it is. Twice is fine."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _delete_expired(self) -> None:
        shop = self._shop
        while True:
            try:
                deleted = await shop.access.call(lambda store: store.delete_expired(shop.now))
                if deleted:
                    logger.info("deleted %d files whose time had come", deleted)
            except Exception:
                logger.exception("old files could not be deleted")
            await shop.pause(LOOK_S)


def _find_unchecked(store: Store) -> list[str]:
    return store.batch_ids((BatchStatus.VALIDATING,))


def _find_unanswered(store: Store) -> list[str]:
    return store.batch_ids((BatchStatus.IN_PROGRESS,))


class _Crew:
    """Does one job for every batch that it finds and that no crew is `busy` with, for so many `at_once`.

    The store answers in order, so that none finds a batch that another has just ended.
    """

    def __init__(self, shop: Workshop, find: Find, job: Job, at_once: int, busy: set[str]) -> None:
        self.news = asyncio.Event()
        self._shop = shop
        self._find = find
        self._job = job
        self._at_once = at_once
        self._busy = busy
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, look: Callable[[], None]) -> None:
        """Until it is cancelled, which cancels its jobs. `look` is called when a job ends."""
        try:
            while True:
                self.news.clear()
                await self._start_jobs(look)
                # Not `wait_for`, which in Python 3.11 can swallow the cancellation that ends this.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self.news.wait()
        finally:
            running = tuple(self._running.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _start_jobs(self, look: Callable[[], None]) -> None:
        try:
            waiting = await self._shop.access.call(self._find)
        except Exception:
            logger.exception("the batches cannot be read")
            return
        for batch_id in waiting:
            if len(self._running) >= self._at_once:
                return
            if batch_id not in self._busy:
                self._busy.add(batch_id)
                self._running[batch_id] = asyncio.create_task(self._run_job(batch_id, look))

    async def _run_job(self, batch_id: str, look: Callable[[], None]) -> None:
        try:
            await self._do_or_fail(batch_id)
        except Exception:
            logger.exception("work on %s stopped, and goes on in %g s", batch_id, REST_S)
            await self._shop.pause(REST_S)
        finally:
            del self._running[batch_id]
            self._busy.remove(batch_id)
            look()

    async def _do_or_fail(self, batch_id: str) -> None:
        try:
            await self._job(self._shop, batch_id)
        except FileNotFoundError:
            logger.exception("a file of %s is gone", batch_id)
            await fail(self._shop, batch_id, [GONE])
