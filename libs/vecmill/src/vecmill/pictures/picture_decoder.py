"""The decoding of pictures off the event loop, in child processes.

How it works. Each thread takes one picture after the other, of the client that has had the least time, and of
its requests in turn (`client_turns`). So neither a request of a thousand pictures holds up a request of one,
nor do files that were made to be slow hold up those of others. A thread has a child process of its own (see
`decoding_worker`), with one picture in it at a time. So it is known which picture ended a child, and the next
child decodes the others.

Room. Waiting pictures are bounded in bytes: those of their files, and those of their pixels, as a small file
may become many pixels. One client has two thirds of the room, unless nothing else of it waits.

Rules: `_condition` guards the turns and the sums. Futures are touched on the event loop only.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import PathFinder

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import QueueFull, RequestError, RequestTooLarge, VecmillError, mill_closed
from vecmill.pictures.client_turns import ClientTurns, Turn
from vecmill.pictures.decoding_worker import DecodingWorker, InProcessWorker, PictureWorker, WorkerStopped
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.pictures.reading import missing_pillow, shape_pixels
from vecmill.values.clock import Clock, monotonic
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill.values.own_thread import call_in_thread

Pixels = NDArray[np.uint8]
"""The pixels of a picture, of shape (height, width, 3)."""

# Of 400 pictures of 224 x 224 pixels, in files of 160 kB.
MAX_WAITING_BYTES = 128 * 2**20
# The share of them that one client may have.
CLIENT_SHARE = 2 / 3

_SHORTEST_RETRY_S = 0.05
_FIRST_PACE_S = 0.02  # the time of a picture, before one is measured
_PACE_MEMORY = 0.9  # how much of the pace a new measurement leaves


@dataclass(eq=False, slots=True)
class _Asked:
    """The pictures of one call. Those before `next` are decoded or, `running` of them, being decoded.

    If it `stops`, no picture after one that failed is decoded.
    """

    pictures: Sequence[bytes]
    geometry: PictureGeometry
    client: str | None
    stops: bool
    done: asyncio.Future[None]
    next: int = 0
    running: int = 0
    found: dict[int, Pixels | Exception] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """How many pictures are not begun."""
        return len(self.pictures) - self.next


class PictureDecoder:
    """Decodes the pictures of many callers, on one event loop.

    `processes` is the number of child processes; each starts with its first picture, takes 20 MB of memory
    beside `limits.memory_bytes`, and decodes one picture at a time. With 0, a thread decodes in this
    process, for notebooks and tests: then `limits.max_seconds` does not hold, and a fault of a decoder ends
    this process.

    Raises `MissingExtra` without Pillow.
    """

    def __init__(
        self,
        limits: PictureLimits | None = None,
        *,
        processes: int = 1,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        clock: Clock = monotonic,
    ) -> None:
        if PathFinder.find_spec("PIL") is None:
            raise missing_pillow()
        self.limits = limits or PictureLimits()
        self._clock = clock
        self._most_bytes = max_waiting_bytes
        self._condition = threading.Condition()
        self._bytes: Counter[str | None] = Counter()  # of each client, in calls that are not answered
        self._pace_s = _FIRST_PACE_S
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._workers: list[PictureWorker] = (
            [DecodingWorker(self.limits, clock) for _ in range(processes)]
            if processes
            else [InProcessWorker(self.limits)]
        )
        self._turns: ClientTurns[_Asked] = ClientTurns(len(self._workers), _FIRST_PACE_S)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of files and pixels of all calls that are not answered."""
        return self._bytes.total()

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The process ids of the children that have started."""
        found = (worker.pid for worker in self._workers if isinstance(worker, DecodingWorker))
        return tuple(pid for pid in found if pid is not None)

    def refuse_if_full(self, client: str | None, size: int) -> None:
        """Raise the error of `read_each` if files and pixels of `size` bytes have no room."""
        with self._condition:
            self._check_room(client, size)

    async def read(
        self,
        pictures: Sequence[bytes],
        geometry: PictureGeometry,
        client: str | None = None,
        *,
        name: str = "input",
    ) -> list[Pixels]:
        """Return the pixels of each file, as `read_picture` does, on behalf of `client`.

        Raises the error of the first picture that has one, and leaves out the pictures after it. `name` is
        that of the pictures in the request: an `InvalidRequest` tells of `name[index]`. Raises `LaneLost` if
        no process starts, and what `read_each` raises.
        """
        found = await self._ask(pictures, geometry, client, stops=True)
        results = []
        for index in range(len(pictures)):
            result = found[index]
            if isinstance(result, RequestError):
                result.rename_fields({"picture": f"{name}[{index}]"})
                result.field = name
            if isinstance(result, Exception):
                raise result
            results.append(result)
        return results

    async def read_each(
        self, pictures: Sequence[bytes], geometry: PictureGeometry, client: str | None = None
    ) -> list[Pixels | VecmillError]:
        """Return the pixels or the error of each file, on behalf of `client`.

        Raises `QueueFull` if there is no room for the pictures now, `RequestTooLarge` if there never is,
        `ShuttingDown` after `close`.
        """
        found = await self._ask(pictures, geometry, client, stops=False)
        results: list[Pixels | VecmillError] = []
        for index in range(len(pictures)):
            result = found[index]
            if isinstance(result, Exception) and not isinstance(result, VecmillError):
                raise result
            results.append(result)
        return results

    async def close(self) -> None:
        """End all processes and threads. Calls that are not answered raise `ShuttingDown`."""
        with self._condition:
            self._is_closed = True
            for asked in self._turns.works:
                self._drop(asked)
                _settle(asked, mill_closed())
            self._condition.notify_all()
        for worker in self._workers:
            worker.stop()
        threads = list(self._threads)
        if threads:
            await call_in_thread("vecmill-pictures-close", lambda: _join(threads))

    async def _ask(
        self, pictures: Sequence[bytes], geometry: PictureGeometry, client: str | None, *, stops: bool
    ) -> dict[int, Pixels | Exception]:
        if not pictures:
            return {}
        size = sum(map(len, pictures)) + len(pictures) * pixel_bytes(geometry)
        asked = _Asked(pictures, geometry, client, stops, asyncio.get_running_loop().create_future())
        with self._condition:
            self._check_room(client, size)
            self._bytes[client] += size
            self._turns.add(client, asked)
            self._condition.notify(len(pictures))
        try:
            self._start_threads()
            await asked.done
        finally:
            with self._condition:
                self._bytes[client] -= size
                if not self._bytes[client]:
                    del self._bytes[client]
                self._drop(asked)
        return asked.found

    def _drop(self, asked: _Asked) -> None:
        """Let no more pictures of a call be begun."""
        asked.next = len(asked.pictures)
        self._turns.remove(asked.client, asked)

    def _check_room(self, client: str | None, size: int) -> None:
        if self._is_closed:
            raise mill_closed()
        most = self._most_bytes
        if size > most:
            raise RequestTooLarge(
                f"The pictures take {size} bytes with their pixels; at most {most} are accepted. Send them "
                "in parts."
            )
        held, own = self.waiting_bytes, self._bytes[client]
        excess = max(held + size - most, own and own + size - int(CLIENT_SHARE * most))
        if excess > 0:
            waiting = sum(asked.waiting for asked in self._turns.works)
            share = min(1.0, excess / held)
            wait_s = share * waiting * self._pace_s / len(self._workers)
            raise QueueFull(
                "As many pictures wait to be decoded as are accepted. Try again later.",
                retry_after_s=max(_SHORTEST_RETRY_S, wait_s),
            )

    def _start_threads(self) -> None:
        while len(self._threads) < len(self._workers):
            number = len(self._threads)
            thread = threading.Thread(
                target=self._work,
                args=(self._workers[number],),
                name=f"vecmill-pictures-{number}",
                daemon=True,
            )
            thread.start()  # may raise; the next call then tries again
            self._threads.append(thread)

    # On a thread of its own for each worker. Linux ends a child with the thread that started it.

    def _work(self, worker: PictureWorker) -> None:
        try:
            while (taken := self._take()) is not None:
                turn, index = taken
                began = self._clock()
                result = self._decode(worker, turn.work, index)
                took_s = self._clock() - began
                with self._condition:
                    self._pace_s += (1 - _PACE_MEMORY) * (took_s - self._pace_s)
                    self._turns.end(turn, took_s)
                    self._condition.notify_all()  # a place is free that a waiting client may have now
                    self._note(turn.work, index, result)
                del taken, turn, result  # they hold files and pixels
        finally:
            worker.end()

    def _take(self) -> tuple[Turn[_Asked], int] | None:
        """Wait for a picture, and take it; `None` after `close`."""
        with self._condition:
            while not self._is_closed:
                turn = self._turns.take()
                if turn is not None:
                    asked = turn.work
                    index = asked.next
                    asked.next += 1
                    asked.running += 1
                    if asked.waiting:
                        self._turns.add(asked.client, asked)
                    return turn, index
                self._condition.wait()
        return None

    def _decode(self, worker: PictureWorker, asked: _Asked, index: int) -> Pixels | Exception:
        try:
            data = asked.pictures[index]
            self.limits.check_bytes(len(data))
            return shape_pixels(worker.decode(data, asked.geometry), asked.geometry)
        except WorkerStopped:
            return mill_closed()
        except INTERRUPTIONS as error:  # no one's, on this thread
            return RuntimeError(repr(error))
        except Exception as error:
            return error

    def _note(self, asked: _Asked, index: int, result: Pixels | Exception) -> None:
        asked.found[index] = result
        asked.running -= 1
        if asked.stops and isinstance(result, Exception) and asked.waiting:
            self._drop(asked)
        if not asked.waiting and not asked.running:
            _settle(asked)


def pixel_bytes(geometry: PictureGeometry) -> int:
    """Return the bytes of the pixels of each picture."""
    return 3 * math.prod(geometry.size)


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def _settle(asked: _Asked, error: VecmillError | None = None) -> None:
    """Answer a call, from any thread."""

    def settle() -> None:
        if asked.done.done():
            return
        if error is None:
            asked.done.set_result(None)
        else:
            asked.done.set_exception(error)

    with suppress(RuntimeError):  # the loop is closed, and nobody waits
        asked.done.get_loop().call_soon_threadsafe(settle)
