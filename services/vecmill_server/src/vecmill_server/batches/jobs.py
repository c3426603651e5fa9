"""Which batches are worked on: a few at a time, the oldest first, from the start of the server to its end.

Checking inputs and answering lines have places of their own, so that a file that cannot be read is known soon
however long others take.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection

from vecmill_server.batches.records import AT_WORK, BatchStatus, LineProblem
from vecmill_server.batches.work import Workshop, validate, work_on

logger = logging.getLogger(__name__)

VALIDATIONS_AT_ONCE = 1
BATCHES_AT_ONCE = 4
# Files whose time has come are looked for so often; and so is everything else, should a call have been
# missed.
LOOK_S = 60.0
# After an error that nobody foresaw, such as a full disk.
REST_S = 30.0

GONE = LineProblem(
    "file_gone", "A file of this batch is gone from the server's disk. Upload it and begin again."
)

Job = Callable[[Workshop, str], Awaitable[None]]


class Jobs:
    """Runs what is open. Use from one event loop."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._tasks: list[asyncio.Task[None]] = []
        self._crews = (
            _Crew(shop, (BatchStatus.VALIDATING,), validate, VALIDATIONS_AT_ONCE),
            _Crew(shop, AT_WORK, work_on, BATCHES_AT_ONCE),
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


class _Crew:
    """Does one job for every batch in some statuses, for so many `at_once`."""

    def __init__(self, shop: Workshop, statuses: Collection[BatchStatus], job: Job, at_once: int) -> None:
        self.news = asyncio.Event()
        self._shop = shop
        self._statuses = statuses
        self._job = job
        self._at_once = at_once
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
            waiting = await self._shop.access.call(lambda store: store.batch_ids(self._statuses))
        except Exception:
            logger.exception("the batches cannot be read")
            return
        for batch_id in waiting:
            if len(self._running) >= self._at_once:
                return
            if batch_id not in self._running:
                self._running[batch_id] = asyncio.create_task(self._run_job(batch_id, look))

    async def _run_job(self, batch_id: str, look: Callable[[], None]) -> None:
        try:
            await self._job(self._shop, batch_id)
        except FileNotFoundError:
            logger.exception("a file of %s is gone", batch_id)
            await self._shop.access.call(lambda store: store.fail(batch_id, [GONE], self._shop.now))
            self._shop.metrics.batch_ended(BatchStatus.FAILED)
        except Exception:
            logger.exception("work on %s stopped, and goes on in %g s", batch_id, REST_S)
            await self._shop.pause(REST_S)
        finally:
            del self._running[batch_id]
            look()
