"""Callers of the decoder take turns, have room for so many bytes, and leave nothing behind."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from support.callback_time import longest_callback
from support.drawn_pictures import draw_picture, write_picture
from vecmill.errors import InvalidRequest, QueueFull, RequestTooLarge, ShuttingDown
from vecmill.pictures.decoding_worker import WorkerStopped
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_decoder import PictureDecoder
from vecmill.pictures.picture_limits import PictureLimits, unreadable

SIDE = 2
PIXELS = SIDE * SIDE * 3
GEOMETRY = PictureGeometry((SIDE, SIDE), 3, None)


class GatedWorker:
    """Notes the pictures that it gets, and waits at the first until the test opens the gate."""

    def __init__(self, limits: PictureLimits) -> None:
        self.begun: list[bytes] = []
        self.is_busy, self._gate, self._is_stopped = threading.Event(), threading.Event(), False
        self.now = 0.0

    def open(self) -> None:
        """Let all pictures be decoded."""
        self._gate.set()

    def decode(self, data: bytes, geometry: PictureGeometry) -> bytes:
        """Return as many bytes as there are pixels; a picture named bad is wrong, and one named slow slow."""
        self.begun.append(data)
        self.is_busy.set()
        self._gate.wait()
        self.now += 3.0 if data == b"slow" else 0.01
        if self._is_stopped:
            raise WorkerStopped
        if data.startswith(b"bad"):
            raise unreadable("is bad")
        if data.startswith(b"bug"):
            raise ZeroDivisionError
        return bytes(PIXELS)

    def stop(self) -> None:
        """Let the picture that waits, and all others, fail."""
        self._is_stopped = True
        self._gate.set()

    def end(self) -> None:
        """Do nothing."""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[GatedWorker]:
    found = GatedWorker(PictureLimits())
    monkeypatch.setattr("vecmill.pictures.picture_decoder.InProcessWorker", lambda limits: found)
    yield found
    found.open()


@pytest.fixture
async def decoder(worker: GatedWorker) -> AsyncIterator[PictureDecoder]:
    found = PictureDecoder(processes=0, max_waiting_bytes=1000)
    yield found
    worker.open()
    await found.close()


async def ask(
    decoder: PictureDecoder,
    worker: GatedWorker,
    *pictures: bytes,
    stops: bool = False,
    client: str | None = None,
) -> "asyncio.Task[object]":
    """Start a call, and wait until it is in line."""
    call = decoder.read if stops else decoder.read_each
    task: asyncio.Task[object] = asyncio.create_task(call(pictures, GEOMETRY, client))
    await asyncio.sleep(0)
    await asyncio.to_thread(worker.is_busy.wait)
    return task


async def test_callers_take_turns(decoder: PictureDecoder, worker: GatedWorker) -> None:
    many = await ask(decoder, worker, b"a0", b"a1", b"a2", b"a3")
    one = await ask(decoder, worker, b"b0")
    two = await ask(decoder, worker, b"c0", b"c1")
    worker.open()
    await asyncio.gather(many, one, two)
    assert worker.begun == [b"a0", b"a1", b"b0", b"c0", b"a2", b"c1", b"a3"]


@pytest.fixture
async def timed(worker: GatedWorker) -> AsyncIterator[PictureDecoder]:
    """A decoder for which pictures take time by a clock that the worker sets."""
    found = PictureDecoder(processes=0, max_waiting_bytes=10_000, clock=lambda: worker.now)
    yield found
    worker.open()
    await found.close()


async def test_slow_pictures_of_one_client_hold_up_another_for_one_of_them(
    timed: PictureDecoder, worker: GatedWorker
) -> None:
    floods = [await ask(timed, worker, *[b"slow"] * 5, client="flood") for _ in range(20)]
    others = [await ask(timed, worker, *[b"fast"] * 20, client="other") for _ in range(3)]
    late = [await ask(timed, worker, b"one", client="third")]
    worker.open()
    await asyncio.gather(*others, *late)
    # Beside the one that had begun, the flood gets no turn before others have had as much time.
    assert worker.begun[: worker.begun.index(b"one")].count(b"slow") <= 1
    assert worker.begun[:62].count(b"slow") <= 1
    await asyncio.gather(*floods)
    assert worker.begun.count(b"slow") == 100


async def test_a_client_that_comes_back_has_not_lost_what_it_has_had(
    timed: PictureDecoder, worker: GatedWorker
) -> None:
    """A client that sends a slow picture after the answer to the one before is no new client each time."""
    first = await ask(timed, worker, b"slow", client="flood")
    other = await ask(timed, worker, *[b"fast"] * 50, client="other")
    worker.open()
    await first
    again = await ask(timed, worker, b"slow", client="flood")
    await asyncio.gather(other, again)
    assert worker.begun == [b"slow", *[b"fast"] * 50, b"slow"]


async def test_one_client_leaves_room_for_others(decoder: PictureDecoder, worker: GatedWorker) -> None:
    first = await ask(decoder, worker, bytes(488), client="flood")
    with pytest.raises(QueueFull):
        await decoder.read([bytes(188)], GEOMETRY, "flood")
    with pytest.raises(QueueFull):
        decoder.refuse_if_full("flood", 200)
    decoder.refuse_if_full("flood", 100)
    other = await ask(decoder, worker, bytes(488), client="other")
    worker.open()
    await asyncio.gather(first, other)
    assert decoder.waiting_bytes == 0


async def test_what_finds_no_room_is_refused(decoder: PictureDecoder, worker: GatedWorker) -> None:
    first = await ask(decoder, worker, *[bytes(88)] * 9)
    assert decoder.waiting_bytes == 900
    with pytest.raises(QueueFull) as refused:
        await decoder.read([bytes(89)], GEOMETRY)
    assert refused.value.retry_after_s >= 0.05
    second = await ask(decoder, worker, bytes(88), client="other")  # what fits is accepted
    with pytest.raises(RequestTooLarge, match="take 1001 bytes with their pixels; at most 1000 are accepted"):
        await decoder.read([bytes(989)], GEOMETRY)
    worker.open()
    await asyncio.gather(first, second)
    assert decoder.waiting_bytes == 0
    assert len(await decoder.read([bytes(988)], GEOMETRY)) == 1


async def test_small_files_of_many_pixels_need_the_room_of_their_pixels(worker: GatedWorker) -> None:
    decoder = PictureDecoder(processes=0, max_waiting_bytes=10 * PIXELS)
    with pytest.raises(RequestTooLarge):
        await decoder.read([b"x"] * 10, GEOMETRY)
    worker.open()
    assert len(await decoder.read([b"x"] * 9, GEOMETRY)) == 9
    await decoder.close()


async def test_a_cancelled_call_leaves_no_work(decoder: PictureDecoder, worker: GatedWorker) -> None:
    call = await ask(decoder, worker, b"a0", b"a1", b"a2")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert decoder.waiting_bytes == 0
    other = await ask(decoder, worker, b"b0")
    worker.open()
    await other
    assert worker.begun == [b"a0", b"b0"]


async def test_the_first_error_ends_a_call_and_names_its_picture(
    decoder: PictureDecoder, worker: GatedWorker
) -> None:
    worker.open()
    with pytest.raises(InvalidRequest) as refused:
        await decoder.read([b"a0", b"bad1", b"a2", b"bad3"], GEOMETRY)
    assert refused.value.message == "`input[1]` is bad."
    assert refused.value.field == "input"
    assert worker.begun == [b"a0", b"bad1"]
    with pytest.raises(InvalidRequest, match=r"^`images\[0\]` is bad\.$") as refused:
        await decoder.read([b"bad"], GEOMETRY, name="images")
    assert refused.value.field == "images"


async def test_each_picture_has_its_own_error(decoder: PictureDecoder, worker: GatedWorker) -> None:
    worker.open()
    found = await decoder.read_each([b"a0", b"bad1", b"", b"a3"], GEOMETRY)
    assert [type(result).__name__ for result in found] == [
        "ndarray",
        "InvalidRequest",
        "InvalidRequest",
        "ndarray",
    ]
    assert str(found[2]) == "`picture` is empty."
    assert await decoder.read_each([], GEOMETRY) == await decoder.read([], GEOMETRY) == []


async def test_an_error_of_the_program_is_no_error_of_the_sender(
    decoder: PictureDecoder, worker: GatedWorker
) -> None:
    worker.open()
    for call in (decoder.read, decoder.read_each):
        with pytest.raises(ZeroDivisionError):
            await call([b"bug"], GEOMETRY)
    assert len(await decoder.read([b"a"], GEOMETRY)) == 1


async def test_a_closed_decoder_answers_all_and_accepts_nothing(
    decoder: PictureDecoder, worker: GatedWorker
) -> None:
    calls = [await ask(decoder, worker, b"a0", b"a1"), await ask(decoder, worker, b"b0", stops=True)]
    before = threading.active_count()
    await decoder.close()
    await decoder.close()
    assert threading.active_count() < before
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ShuttingDown, ShuttingDown]
    assert worker.begun == [b"a0"]
    with pytest.raises(ShuttingDown):
        await decoder.read([b"c"], GEOMETRY)


async def test_the_last_picture_of_a_call_that_is_closed_has_its_own_error(
    decoder: PictureDecoder, worker: GatedWorker
) -> None:
    call = await ask(decoder, worker, b"a0")
    await decoder.close()
    (answer,) = await asyncio.gather(call)
    assert isinstance(answer, list)
    assert [type(each) for each in answer] == [ShuttingDown]


async def test_nothing_long_happens_on_the_event_loop() -> None:
    decoder = PictureDecoder()
    picture = write_picture(draw_picture("RGB", 800, 800), "PNG")
    assert len(picture) > 1_000_000
    await decoder.read([picture], GEOMETRY)
    async with longest_callback() as longest:
        await asyncio.gather(*(decoder.read([picture] * 8, GEOMETRY) for _ in range(4)))
    await decoder.close()
    assert longest.took_s < 0.002, longest  # it was 0.0002
