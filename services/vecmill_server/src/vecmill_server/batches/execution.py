"""The execution of one batch: the validation of its input, the running of its lines, and its output files.

How it works. Lines are read in slices and started in order, as many as `InFlightLimit` allows. Each line is a
task that returns the bytes to write. Results are collected in input order, and committed a few times a
second. Lines that are not committed when the process ends are run again by the next process. Cancelling the
task of `run_batch` stops the batch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TypeVar

from vecmill.errors import DeviceLost, OverloadError, QueueFull, UnavailableError, VecmillError
from vecmill.requests import FetchPictures
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill_server.base.errors import ModelUnavailable, StorageFull
from vecmill_server.base.json_io import LARGE_INPUT_COUNT, run_off_loop
from vecmill_server.base.settings import ServerSettings
from vecmill_server.batches.in_flight_limit import InFlightLimit
from vecmill_server.batches.jsonl import (
    InputLine,
    LineAnswer,
    LineRequest,
    LineResult,
    SliceTurns,
    read_line_request,
    read_lines,
    write_answer,
    write_dropped,
    write_failure,
)
from vecmill_server.batches.objects import BatchObject, BatchProgress, BatchStatus, LineError
from vecmill_server.batches.store import Store
from vecmill_server.batches.store_thread import StoreThread
from vecmill_server.batches.validation import Validation
from vecmill_server.catalog.catalog import Catalog
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.space_headers import space_of_answer, write_space
from vecmill_server.dialects.truncated_inputs import truncated_headers
from vecmill_server.http1.request_cycle import split_lines
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics
from vecmill_server.telemetry.tracing.trace import Tracer, trace_line

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The interval and size of commits, which bound the work that is repeated after the process ends, and the
# time of the event loop for one of them.
COMMIT_S = 0.2
COMMIT_BYTES = 4 * 1024 * 1024
COMMIT_LINES = 512

# Temporary errors: a retry may succeed, in this process or in the one that replaces it.
PASSING = (OverloadError, UnavailableError, DeviceLost)
RETRY_S = 2.0
LONGEST_PAUSE_S = 30.0

# Gives what fetches pictures for a client, `None` if nothing does.
FetchingFor = Callable[[str], AbstractContextManager[FetchPictures | None]]


def fetch_nothing(_client: str) -> AbstractContextManager[FetchPictures | None]:
    """Give nothing that fetches pictures."""
    return nullcontext()


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The dependencies of batches. `wall_clock` returns Unix seconds, `clock` monotonic seconds.

    `report_unknown` takes the names of unknown fields of a request, and the name of the route.
    `fetching_for` gives what fetches pictures for a client, as long as their bytes are held.
    """

    store_thread: StoreThread
    settings: ServerSettings
    catalog: Catalog
    metrics: ServerMetrics
    options: DialectOptions
    wall_clock: Callable[[], float]
    clock: Callable[[], float]
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    report_unknown: Callable[[Sequence[str], str], None] = lambda *_: None
    tracer: Tracer | None = None
    slices: SliceTurns = field(default_factory=SliceTurns)
    fetching_for: FetchingFor = fetch_nothing

    @property
    def now(self) -> int:
        """The current time in whole Unix seconds."""
        return int(self.wall_clock())


async def validate_batch(context: BatchContext, batch_id: str) -> None:
    """Check the input of a batch that is validating, and set it in progress or failed.

    Ends early if the batch is cancelled. Raises `FileNotFoundError` if the file was removed from the disk.
    """
    settings = context.settings
    batch = await context.store_thread.call(lambda store: store.batch(batch_id))
    path = context.store_thread.store.folder.path(batch.input_file_id)
    check = Validation(
        batch.endpoint,
        settings.max_batch_lines,
        settings.max_body_bytes,
        context.catalog.document_limits,
    )

    def read_on() -> None:
        check.read(read_lines(path, check.offset, check.lines, settings.max_body_bytes))

    looked_at = context.clock()
    while not check.is_done and batch.status is BatchStatus.VALIDATING:
        await context.slices.run(batch.owner, read_on)
        if context.clock() - looked_at >= COMMIT_S:
            batch = await context.store_thread.call(lambda store: store.batch(batch_id))
            looked_at = context.clock()
    if not check.is_done:
        return
    if check.errors:
        await fail_batch(context, batch_id, check.errors)
    else:
        await context.store_thread.call(lambda store: store.begin(batch_id, check.total, context.now))


async def fail_batch(context: BatchContext, batch_id: str, problems: Sequence[LineError]) -> None:
    """End a batch that cannot be run with the status failed, unless it has already ended."""
    batch = await context.store_thread.call(lambda store: store.fail(batch_id, problems, context.now))
    if batch.status is BatchStatus.FAILED:
        context.metrics.batch_ended(batch.status)


async def run_batch(context: BatchContext, batch_id: str) -> None:
    """Run a batch in progress to its end.

    Raises `FileNotFoundError` if a file was removed from the disk. Raises `ModelUnavailable` if the model of
    a line cannot answer in this process; the results of the lines before are stored.
    """
    run = _BatchRun(context, await context.store_thread.call(lambda store: store.batch(batch_id)))
    await context.store_thread.call(lambda store: store.check_contents(batch_id))
    try:
        await run.answer_lines()
    finally:
        run.drop_in_flight()
    await run.drop_rest()
    keep_s = context.settings.batch_keep_s
    batch = await context.store_thread.call(lambda store: store.finish(batch_id, context.now, keep_s))
    if batch.errors:  # it was stopped, so that the other lines have neither an answer nor an error
        context.metrics.batch_lines(
            completed=0, failed=0, dropped=batch.total - batch.completed - batch.failed
        )
    context.metrics.batch_ended(batch.status)


@dataclass(slots=True)
class _BatchRun:
    """The state of one run of a batch."""

    context: BatchContext
    batch: BatchObject
    limit: InFlightLimit = field(default_factory=InFlightLimit)
    unread: deque[LineRequest] = field(default_factory=deque)
    in_flight: deque[tuple[LineRequest, asyncio.Task[LineResult | ModelUnavailable]]] = field(
        default_factory=deque
    )
    ended: list[LineResult] = field(default_factory=list)
    committed_at: float = 0.0
    read_offset: int = 0
    read_count: int = 0

    def __post_init__(self) -> None:
        self.read_offset, self.read_count = self.batch.input_offset, self.batch.lines_done
        self.committed_at = self.context.clock()

    async def answer_lines(self) -> None:
        """Run lines until none is left, or the batch is cancelled or expires."""
        await self._commit()  # the batch may have expired before it begins
        while self.batch.ending is BatchStatus.COMPLETED:
            await self._start_lines()
            if not self.in_flight:
                await self._commit()
                return
            await self._collect()
            if self._is_time():
                await self._commit()

    def drop_in_flight(self) -> None:
        """Cancel the lines that are not committed. They count as not started."""
        for _, task in self.in_flight:
            task.cancel()
        self.in_flight.clear()
        self.unread.clear()
        self.ended.clear()
        self.read_offset, self.read_count = self.batch.input_offset, self.batch.lines_done

    async def drop_rest(self) -> None:
        """Write an error for each line that has not been run, unless there is no more space for results."""
        write = partial(write_dropped, self.batch.id, ending=self.batch.ending)
        while not self.batch.errors and (results := await self._read(write)):
            self.ended.extend(results)
            if self._is_time():
                await self._commit()
        await self._commit()

    async def _start_lines(self) -> None:
        while self.limit.has_room:
            if not self.unread:
                self.unread.extend(await self._read(self._read_request))
            if not self.unread:
                return
            request = self.unread.popleft()
            self.limit.enter(request.texts, request.line.size)
            self.in_flight.append((request, asyncio.create_task(self._answer(request))))
            await asyncio.sleep(0)  # other tasks run between two lines

    async def _collect(self) -> None:
        """Wait for the oldest line, at most for the commit interval, and collect the results."""
        oldest = self.in_flight[0][1]
        await asyncio.wait((oldest,), timeout=COMMIT_S)
        while self.in_flight and self.in_flight[0][1].done():
            request, task = self.in_flight.popleft()
            self.limit.leave(request.texts, request.line.size)
            result = task.result()
            if isinstance(result, ModelUnavailable):
                await self._commit()
                raise result
            self.ended.append(result)

    def _is_time(self) -> bool:
        late = self.context.clock() - self.committed_at >= COMMIT_S
        return (
            late
            or len(self.ended) >= COMMIT_LINES
            or sum(len(one.written) for one in self.ended) >= COMMIT_BYTES
        )

    async def _commit(self) -> None:
        """Store the results, and update the state of the batch: it may be cancelled or expired."""
        batch, thread = self.batch, self.context.store_thread
        if self.ended:
            await self._store_ended()
        else:
            self.batch = await thread.call(lambda store: store.batch(batch.id))
        if self.batch.ending is BatchStatus.COMPLETED and self.context.now >= self.batch.expires_at:
            self.batch = await thread.call(lambda store: store.expire(batch.id))
        self.committed_at = self.context.clock()

    async def _store_ended(self) -> None:
        """Store the results. If not all fit into the storage limits, stop the batch after those that do."""
        ended, full = list(self.ended), None
        while ended:
            try:
                await self._advance(ended)
                break
            except StorageFull as error:
                ended, full = _fitting(ended, error.room), error
        self.ended.clear()
        if full is not None:
            batch = self.batch
            stopped = LineError(
                "storage_limit_exceeded",
                f"{full.message} The batch ended early, with the results of the first {batch.lines_done} "
                "lines. Create a new batch of the other lines.",
                line=batch.lines_done + 1,
            )
            logger.warning("%s ends early, because its results pass the limit on stored bytes", batch.id)
            self.batch = await self.context.store_thread.call(lambda store: store.stop(batch.id, stopped))

    async def _advance(self, ended: list[LineResult]) -> None:
        batch = self.batch

        def advance(store: Store) -> tuple[BatchObject, BatchProgress]:
            # On the thread: the results are megabytes to join.
            progress = _progress(ended, batch.lines_done)
            return store.advance(batch, progress), progress

        self.batch, progress = await self.context.store_thread.call(advance)
        dropped = sum(one.is_dropped for one in ended)
        self.context.metrics.batch_lines(
            completed=progress.completed, failed=progress.failed - dropped, dropped=dropped
        )
        for one in ended:
            if one.is_completed:
                self.context.metrics.work_done(batch.owner, one.model, texts=one.texts, tokens=one.tokens)

    async def _read(self, convert: Callable[[InputLine], T]) -> list[T]:
        """Return the results of `convert` for the next lines. An empty list means the end of the file."""
        path = self.context.store_thread.store.folder.path(self.batch.input_file_id)
        offset, count = self.read_offset, self.read_count

        def read() -> tuple[list[T], int, int]:
            # Without a limit: the lines were validated, perhaps by a server with other settings.
            lines = read_lines(path, offset, count)
            size = sum(line.size for line in lines)
            return [convert(line) for line in lines], offset + size, lines[-1].number if lines else count

        results, self.read_offset, self.read_count = await self.context.slices.run(self.batch.owner, read)
        return results

    def _read_request(self, line: InputLine) -> LineRequest:
        request = read_line_request(line, self.batch.endpoint, self.context.options)
        if request.unknown:
            self.context.report_unknown(request.unknown, "batches")
        return request

    async def _answer(self, request: LineRequest) -> LineResult | ModelUnavailable:
        """Return the result of a line, or the error if its model cannot answer in this process.

        Raises only when it is cancelled.
        """
        if request.error is not None:
            return write_failure(self.batch.id, request, request.error)
        while True:
            began = self.context.clock()
            try:
                ended = await self._ask(request)
            except ModelUnavailable as error:
                return error
            except PASSING as error:
                self.limit.observe(request.texts, LONGEST_PAUSE_S)
                await self.context.pause(_retry_s(error))
                continue
            except VecmillError as error:
                ended = write_failure(self.batch.id, request, error)
            except INTERRUPTIONS:
                raise
            except BaseException as error:  # which would end the task of the batch, and so for ever
                logger.exception("unexpected error in line %d of %s", request.line.number, self.batch.id)
                ended = write_failure(self.batch.id, request, error)
            self.limit.observe(request.texts, self.context.clock() - began)
            return ended

    @property
    def _cache_owner(self) -> str | None:
        """Whose cached embeddings are found: those of the owner; without keys, those of all requests."""
        return self.batch.owner if self.context.settings.has_api_keys else self.batch.owner or None

    async def _ask(self, request: LineRequest) -> LineResult:
        if request.is_blank:
            return LineResult(request.line)
        assert request.asked is not None
        asked = request.asked.request
        model = self.context.catalog.resolve_serving(
            request.asked.model, asked.tasks, needs_pictures=bool(asked.pictures)
        )
        client = f"batches of {self.batch.owner}"
        with (
            trace_line(self.context.tracer, self.batch.id, request.line.number) as trace,
            self.context.fetching_for(client) as fetch,
        ):
            if trace is not None:
                trace.describe(request.asked.request, model.name)
            async with self.context.catalog.hold(model, client=client):
                caller = request.asked.caller(
                    client=client, timeline=trace, owner=self._cache_owner, fetch=fetch
                )
                result = await request.asked.run(model.mill, caller)
                space = space_of_answer(model.mill, request.asked.request)
        lines = b"" if space is None else write_space(space.space, space.exact, space.prompt_name)
        answer = LineAnswer(result, split_lines(lines) + truncated_headers(result.truncated))
        write = partial(write_answer, self.batch.id, request, answer, model.name, self.context.now)
        return await run_off_loop(request.texts > LARGE_INPUT_COUNT, write)


def _fitting(ended: list[LineResult], room: int) -> list[LineResult]:
    """Return the first results, as many as fit into `room` bytes."""
    sizes = accumulate(len(one.written) for one in ended)
    return [one for one, size in zip(ended, sizes, strict=True) if size <= room]


def _progress(ended: list[LineResult], lines_before: int) -> BatchProgress:
    return BatchProgress(
        lines=ended[-1].line.number - lines_before,
        input_bytes=sum(one.line.size for one in ended),
        output=b"".join(one.written for one in ended if one.is_completed),
        errors=b"".join(one.written for one in ended if one.is_failed),
        completed=sum(one.is_completed for one in ended),
        failed=sum(one.is_failed for one in ended),
        tokens=sum(one.tokens for one in ended),
    )


def _retry_s(error: BaseException) -> float:
    """Return the seconds to wait before another attempt."""
    return min(error.retry_after_s, LONGEST_PAUSE_S) if isinstance(error, QueueFull) else RETRY_S
