"""Works on one batch: answers its lines, keeps what became of them, and gives it its files.

How it works. Lines are read a slice at a time and started in order, as many as the window has room for. Each
is a task that ends with what is to be written. They are collected in order, from the oldest on, and
committed a few times a second; what has not been committed when the process ends is done again. Whoever
cancels the task that runs `work_on` stops the work there.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from vecmill.errors import DeviceLost, OverloadError, QueueFull, UnavailableError, VecmillError
from vecmill_server.batches.access import StoreAccess
from vecmill_server.batches.lines import (
    Ended,
    Line,
    Question,
    read_lines,
    read_question,
    write_answer,
    write_dropped,
    write_failure,
)
from vecmill_server.batches.records import BatchRecord, BatchStatus, LineProblem, Progress
from vecmill_server.batches.validation import Validation
from vecmill_server.batches.window import Window
from vecmill_server.catalog import Catalog
from vecmill_server.dialects import DialectOptions
from vecmill_server.documents import LARGE_ROWS, run_off_loop
from vecmill_server.metrics import ServerMetrics
from vecmill_server.settings import ServerSettings

logger = logging.getLogger(__name__)

# What is lost at most when the process ends is the work of so long.
COMMIT_S = 0.2
COMMIT_BYTES = 4 * 1024 * 1024

# Another attempt may succeed: here, or in the process that replaces this one.
PASSING = (OverloadError, UnavailableError, DeviceLost)
RETRY_S = 2.0
LONGEST_RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class Workshop:
    """What work on any batch needs. `wall_clock` gives Unix seconds, `clock` monotonic ones."""

    access: StoreAccess
    settings: ServerSettings
    catalog: Catalog
    metrics: ServerMetrics
    options: DialectOptions
    wall_clock: Callable[[], float]
    clock: Callable[[], float]
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    @property
    def now(self) -> int:
        """Whole Unix seconds."""
        return int(self.wall_clock())


async def validate(shop: Workshop, batch_id: str) -> None:
    """Check the input of a batch that is validating: it begins, or has failed.

    Raises `FileNotFoundError` if somebody has taken the file away.
    """
    settings = shop.settings
    batch = await shop.access.call(lambda store: store.batch(batch_id))
    path = shop.access.store.folder.path(batch.input_file_id)
    check = Validation(batch.endpoint, settings.max_batch_lines, settings.max_body_bytes)

    def read_on() -> None:
        check.read(read_lines(path, check.offset, check.lines, settings.max_body_bytes))

    while not check.is_done:
        await asyncio.to_thread(read_on)
    if check.problems:
        await fail(shop, batch_id, check.problems)
    else:
        await shop.access.call(lambda store: store.begin(batch_id, check.total, shop.now))


async def fail(shop: Workshop, batch_id: str, problems: Sequence[LineProblem]) -> None:
    """End a batch that cannot be worked on, unless it has ended meanwhile."""
    batch = await shop.access.call(lambda store: store.fail(batch_id, problems, shop.now))
    if batch.status is BatchStatus.FAILED:
        shop.metrics.batch_ended(batch.status)


async def work_on(shop: Workshop, batch_id: str) -> None:
    """Work on a batch that has begun until it has ended. Raises `FileNotFoundError`, as `validate` does."""
    work = _Work(shop, await shop.access.call(lambda store: store.batch(batch_id)))
    await shop.access.call(lambda store: store.check_contents(batch_id))
    try:
        await work.answer_lines()
    finally:
        work.drop_in_flight()
    await work.drop_rest()
    keep_s = shop.settings.batch_keep_s
    batch = await shop.access.call(lambda store: store.finish(batch_id, shop.now, keep_s))
    shop.metrics.batch_ended(batch.status)


@dataclass(slots=True)
class _Work:
    """Where the work on one batch is."""

    shop: Workshop
    batch: BatchRecord
    window: Window = field(default_factory=Window)
    unread: deque[Question] = field(default_factory=deque)
    in_flight: deque[tuple[Question, asyncio.Task[Ended]]] = field(default_factory=deque)
    ended: list[Ended] = field(default_factory=list)
    committed_at: float = 0.0
    read_offset: int = 0
    read_count: int = 0

    def __post_init__(self) -> None:
        self.read_offset, self.read_count = self.batch.input_offset, self.batch.lines_done
        self.committed_at = self.shop.clock()

    async def answer_lines(self) -> None:
        """Answer lines until there are no more, or the batch is to end without them."""
        await self._commit()  # its time may be over before it begins
        while self.batch.ending is BatchStatus.COMPLETED:
            await self._start_lines()
            if not self.in_flight:
                await self._commit()
                return
            await self._collect()
            if self._is_time():
                await self._commit()

    def drop_in_flight(self) -> None:
        """Stop what was started and not committed: it counts as never begun."""
        for _, task in self.in_flight:
            task.cancel()
        self.in_flight.clear()
        self.unread.clear()
        self.ended.clear()
        self.read_offset, self.read_count = self.batch.input_offset, self.batch.lines_done

    async def drop_rest(self) -> None:
        """Write down, for each line that has not been run, that it will not be. None is left if all were."""
        while lines := await self._read():
            self.ended.extend(write_dropped(self.batch.id, line, self.batch.ending) for line in lines)
            await self._commit()

    async def _start_lines(self) -> None:
        while self.window.has_room:
            if not self.unread:
                lines = await self._read()
                questions = await asyncio.to_thread(self._read_questions, lines)
                self.unread.extend(questions)
            if not self.unread:
                return
            question = self.unread.popleft()
            self.window.enter(question.texts, question.line.size)
            self.in_flight.append((question, asyncio.create_task(self._answer(question))))
            await asyncio.sleep(0)  # others have their turn between two lines

    async def _collect(self) -> None:
        """Wait for the oldest line, but not past the next commit, and take all that have ended in order."""
        oldest = self.in_flight[0][1]
        await asyncio.wait((oldest,), timeout=COMMIT_S)
        while self.in_flight and self.in_flight[0][1].done():
            question, task = self.in_flight.popleft()
            self.window.leave(question.texts, question.line.size)
            self.ended.append(task.result())

    def _is_time(self) -> bool:
        late = self.shop.clock() - self.committed_at >= COMMIT_S
        return late or sum(len(one.written) for one in self.ended) >= COMMIT_BYTES

    async def _commit(self) -> None:
        """Keep what has ended, and learn whether the batch was cancelled meanwhile or its time is over."""
        batch, access = self.batch, self.shop.access
        if self.ended:
            progress = _progress(self.ended, batch.lines_done)
            self.batch = await access.call(lambda store: store.advance(batch, progress))
            dropped = sum(one.is_dropped for one in self.ended)
            self.shop.metrics.batch_lines(
                completed=progress.completed, failed=progress.failed - dropped, dropped=dropped
            )
            self.ended.clear()
        else:
            self.batch = await access.call(lambda store: store.batch(batch.id))
        if self.batch.ending is BatchStatus.COMPLETED and self.shop.now >= self.batch.expires_at:
            self.batch = await access.call(lambda store: store.expire(batch.id))
        self.committed_at = self.shop.clock()

    async def _read(self) -> list[Line]:
        path = self.shop.access.store.folder.path(self.batch.input_file_id)
        # However long: they were found to be short enough, if by a server with other settings.
        lines = await asyncio.to_thread(read_lines, path, self.read_offset, self.read_count)
        self.read_offset += sum(line.size for line in lines)
        self.read_count = lines[-1].number if lines else self.read_count
        return lines

    def _read_questions(self, lines: list[Line]) -> list[Question]:
        return [read_question(line, self.batch.endpoint, self.shop.options) for line in lines]

    async def _answer(self, question: Question) -> Ended:
        """What becomes of a line. Never raises, except when it is cancelled."""
        while True:
            began = self.shop.clock()
            try:
                ended = await self._ask(question)
            except PASSING as error:
                self.window.observe(question.texts, LONGEST_RETRY_S)
                await self.shop.pause(_retry_s(error))
                continue
            except VecmillError as error:
                ended = write_failure(self.batch.id, question, error)
            except Exception as error:
                logger.exception("unexpected error in line %d of %s", question.line.number, self.batch.id)
                ended = write_failure(self.batch.id, question, error)
            self.window.observe(question.texts, self.shop.clock() - began)
            return ended

    async def _ask(self, question: Question) -> Ended:
        if question.is_blank:
            return Ended(question.line)
        if question.error is not None:
            raise question.error
        assert question.asked is not None
        call = question.asked.call
        model = self.shop.catalog.resolve(call.model, call.tasks)
        result = await call.run(model.mill, None)
        write = partial(write_answer, self.batch.id, question, result, model.name, self.shop.now)
        return await run_off_loop(question.texts > LARGE_ROWS, write)


def _progress(ended: list[Ended], lines_before: int) -> Progress:
    return Progress(
        lines=ended[-1].line.number - lines_before,
        input_bytes=sum(one.line.size for one in ended),
        output=b"".join(one.written for one in ended if one.is_completed),
        errors=b"".join(one.written for one in ended if one.is_failed),
        completed=sum(one.is_completed for one in ended),
        failed=sum(one.is_failed for one in ended),
        tokens=sum(one.tokens for one in ended),
    )


def _retry_s(error: BaseException) -> float:
    """How long to wait before another attempt."""
    return min(error.retry_after_s, LONGEST_RETRY_S) if isinstance(error, QueueFull) else RETRY_S
