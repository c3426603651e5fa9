"""The scheduler of batches, which runs a few open batches at a time, and at least one of each owner.

The validation of inputs, the running of lines, and the ending of batches have separate workers. So an invalid
file is reported soon, and a waiting batch can be cancelled, however long other batches take. An owner without
a batch among the running ones does not wait for the batches of others. A batch whose model cannot answer in
this process leaves its place to another batch.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from vecmill.values.interruptions import INTERRUPTIONS
from vecmill_server.base.errors import ModelUnavailable
from vecmill_server.batches.execution import BatchContext, fail_batch, run_batch, validate_batch
from vecmill_server.batches.folder import is_disk_full
from vecmill_server.batches.objects import BatchStatus, LineError
from vecmill_server.batches.store import Store

logger = logging.getLogger(__name__)

# The jobs of a kind that run at a time, if more of one owner wait. Each other owner has one job besides.
VALIDATIONS_AT_ONCE = 1
BATCHES_AT_ONCE = 4
ENDINGS_AT_ONCE = 4
# The interval of the search for expired files, for batches after a missed call of `wake`, and for batches
# whose model could not answer.
LOOK_S = 60.0
# The pause after an unexpected error, such as a full disk.
REST_S = 30.0
# The ended batches that are kept for each owner. The limit on stored bytes does not count their rows.
KEPT_BATCHES = 10_000

GONE = LineError(
    "file_gone",
    "A file of this batch was removed from the server's disk. Upload the input file again, and create a "
    "new batch.",
)

# The owners of batches by their ids, in the order in which to run the batches.
Owners = Mapping[str, str]
Find = Callable[[Store], Owners]
Job = Callable[[BatchContext, str], Awaitable[None]]


class BatchScheduler:
    """The tasks that run the open batches. Use from one event loop."""

    def __init__(self, context: BatchContext) -> None:
        self._context = context
        self._tasks: list[asyncio.Task[None]] = []
        busy = set[str]()
        self._groups = (
            _Workers(context, _find_unchecked, validate_batch, VALIDATIONS_AT_ONCE, busy),
            _Workers(context, _find_unanswered, run_batch, BATCHES_AT_ONCE, busy),
            _Workers(
                context, lambda store: store.ending_batches(context.now), run_batch, ENDINGS_AT_ONCE, busy
            ),
        )

    def start(self) -> None:
        """Resume the open batches."""
        self._tasks = [asyncio.create_task(group.run(self.wake)) for group in self._groups]
        self._tasks.append(asyncio.create_task(self._delete_expired()))

    def wake(self) -> None:
        """Look for work, because a batch was created or has changed its state."""
        for group in self._groups:
            group.changed.set()

    async def stop(self) -> None:
        """Stop, and leave all batches in their states. Can be called twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _delete_expired(self) -> None:
        context = self._context
        while True:
            try:
                deleted = await context.store_thread.call(lambda store: store.delete_expired(context.now))
                await context.store_thread.call(lambda store: store.forget_batches(KEPT_BATCHES))
                if deleted:
                    logger.info("deleted %d expired files", deleted)
            except Exception:
                logger.exception("expired files could not be deleted")
            await context.pause(LOOK_S)


def _find_unchecked(store: Store) -> Owners:
    return store.batch_owners((BatchStatus.VALIDATING,))


def _find_unanswered(store: Store) -> Owners:
    return store.batch_owners((BatchStatus.IN_PROGRESS,))


class _Workers:
    """Workers that run one job for each batch that `find` returns, unless it is `busy`.

    They run `at_once` jobs at a time, and more if each of these is of another owner. The store answers calls
    in order, so `find` never returns a batch that another job has just ended.
    """

    def __init__(self, context: BatchContext, find: Find, job: Job, at_once: int, busy: set[str]) -> None:
        self.changed = asyncio.Event()
        self._context = context
        self._find = find
        self._job = job
        self._at_once = at_once
        self._busy = busy
        self._running: dict[str, asyncio.Task[None]] = {}
        self._jobs_of = Counter[str]()  # the running jobs of each owner
        self._resting: dict[str, float] = {}  # the times until which batches wait for their models

    async def run(self, wake: Callable[[], None]) -> None:
        """Run jobs until cancelled, which cancels the jobs. `wake` is called when a job ends."""
        try:
            while True:
                self.changed.clear()
                await self._start_jobs(wake)
                # Not `wait_for`, which in Python 3.11 can suppress the cancellation of this task.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self.changed.wait()
        finally:
            running = tuple(self._running.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _start_jobs(self, wake: Callable[[], None]) -> None:
        try:
            waiting = await self._context.store_thread.call(self._find)
        except Exception:
            logger.exception("the open batches could not be read")
            return
        now = self._context.clock()
        self._resting = {batch_id: end for batch_id, end in self._resting.items() if end > now}
        for batch_id, owner in waiting.items():
            has_place = len(self._running) < self._at_once or not self._jobs_of[owner]
            if has_place and batch_id not in self._busy and batch_id not in self._resting:
                self._busy.add(batch_id)
                self._jobs_of[owner] += 1
                self._running[batch_id] = asyncio.create_task(self._run_job(batch_id, owner, wake))

    async def _run_job(self, batch_id: str, owner: str, wake: Callable[[], None]) -> None:
        try:
            await self._do_or_fail(batch_id)
        except ModelUnavailable as error:
            # Another batch gets the place, whose model may answer.
            logger.warning("%s waits for at least %g s: %s", batch_id, LOOK_S, error.message)
            self._resting[batch_id] = self._context.clock() + LOOK_S
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            if is_disk_full(error):
                logger.error("the disk is full, so %s pauses for %g s: %s", batch_id, REST_S, error)
            else:
                logger.exception("unexpected error in %s, retrying in %g s", batch_id, REST_S)
            await self._context.pause(REST_S)
        finally:
            del self._running[batch_id]
            self._jobs_of[owner] -= 1
            self._busy.remove(batch_id)
            wake()

    async def _do_or_fail(self, batch_id: str) -> None:
        try:
            await self._job(self._context, batch_id)
        except FileNotFoundError:
            logger.exception("a file of %s was removed from the disk", batch_id)
            await fail_batch(self._context, batch_id, [GONE])
