"""`EmbedPictures`: pictures and texts in one request, each in its place, within limits, or an error."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.drawn_pictures import draw_picture, write_picture
from support.tiny_models import save_tiny_bert
from support.two_towers import save_clip
from vecmill import EmbedPictures, Mill, MillConfig, OutputDtype, Picture
from vecmill.config import InputConfig, QueueConfig
from vecmill.errors import (
    DeadlineExceeded,
    InputTooLong,
    InvalidRequest,
    QueueFull,
    RequestTooLarge,
    ShuttingDown,
    UnsupportedTask,
)
from vecmill.requests import Caller, PictureUrl, TextOptions, Truncation
from vecmill.values.observer import Timeline

FILES = tuple(write_picture(draw_picture("RGB", 20 + seed, 40, seed), "PNG") for seed in range(4))
PICTURES = tuple(map(Picture, FILES))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
async def mill(folder: Path, cache: Path) -> AsyncIterator[Mill]:
    async with Mill(folder, MillConfig(cache_dir=cache)) as running:
        yield running


@pytest.mark.promise("answered-once")
async def test_each_of_many_callers_gets_the_embeddings_of_its_own_inputs(mill: Mill) -> None:
    every: tuple[Picture | str, ...] = (*PICTURES, "cat", "dog")
    alone = {each: (await mill.run(EmbedPictures((each,)))).embeddings[0] for each in every}
    inputs: list[tuple[Picture | str, ...]] = [(*every[start:], *every[:start]) for start in range(4)] * 10
    found = await asyncio.gather(*(mill.run(EmbedPictures(each)) for each in inputs))
    for asked, result in zip(inputs, found, strict=True):
        expected = np.stack([alone[each] for each in asked])
        assert np.abs(result.embeddings - expected).max() < 1e-5
        assert result.token_counts == tuple(3 if isinstance(each, str) else 17 for each in asked)
    assert mill.text_counts.open == 0


async def test_a_text_has_the_embedding_that_a_request_of_texts_gives(mill: Mill) -> None:
    found = await mill.run(EmbedPictures(("cat", PICTURES[0]), dimensions=8, normalize=True))
    assert found.embeddings.shape == (2, 8)
    assert np.allclose(np.linalg.norm(found.embeddings, axis=1), 1, atol=1e-5)
    plain = (await mill.run(EmbedPictures(("cat", PICTURES[0])))).embeddings
    assert np.allclose(plain[0], (await mill.embed("cat"))[0], atol=1e-6)
    cut = plain[:, :8] / np.linalg.norm(plain[:, :8], axis=1, keepdims=True)
    assert np.abs(cut - found.embeddings).max() < 1e-5


@pytest.mark.promise("malformed-input")
async def test_a_picture_that_cannot_be_read_is_an_error_that_names_it(mill: Mill) -> None:
    for inputs, message in (
        (("cat", Picture(b"")), r"`input\[1\]` is empty"),
        ((PICTURES[0], Picture(FILES[1][:60]), "cat"), r"`input\[1\]` is a PNG file that cannot be decoded"),
        ((Picture(b"<svg/>"),), r"`input\[0\]` is no PNG, JPEG, WebP or GIF file"),
    ):
        with pytest.raises(InvalidRequest, match=message) as caught:
            await mill.run(EmbedPictures(inputs))
        assert caught.value.field == "input"
    assert len((await mill.run(EmbedPictures(PICTURES))).embeddings) == 4
    assert mill.text_counts.failed == 0  # nothing of them has reached a queue


async def test_types_that_need_ranges_or_whole_bytes_are_refused(mill: Mill) -> None:
    with pytest.raises(InvalidRequest, match="the ranges of int8 and uint8 are measured with texts"):
        await mill.run(EmbedPictures(PICTURES, dtypes=(OutputDtype.INT8,)))
    with pytest.raises(InvalidRequest, match="do not fill whole bytes"):
        await mill.run(EmbedPictures(PICTURES, 9, dtypes=(OutputDtype.BINARY,)))
    with pytest.raises(InvalidRequest, match=r"is of type bytes. It must be a text or a Picture"):
        await mill.run(EmbedPictures((PICTURES[0], FILES[0])))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="EmbedPictures is the request for pictures"):
        await mill.embed([PICTURES[0]])  # type: ignore[list-item]


async def test_a_model_of_texts_alone_refuses_pictures(tmp_path: Path) -> None:
    async with Mill(save_tiny_bert(tmp_path / "model"), MillConfig(cache_dir=tmp_path / "cache")) as mill:
        with pytest.raises(UnsupportedTask, match="embeds texts alone; it cannot embed pictures"):
            await mill.run(EmbedPictures(PICTURES))


async def test_limits_on_requests_hold_for_pictures(folder: Path, cache: Path) -> None:
    inputs = InputConfig(max_inputs=3, max_text_characters=10)
    async with Mill(folder, MillConfig(cache_dir=cache, inputs=inputs)) as mill:
        with pytest.raises(InvalidRequest, match="`input` is empty"):
            await mill.run(EmbedPictures(()))
        with pytest.raises((InvalidRequest, RequestTooLarge), match="`input` has 4 items; at most 3"):
            await mill.run(EmbedPictures(PICTURES))
        with pytest.raises((InvalidRequest, RequestTooLarge), match="has 11 characters"):
            await mill.run(EmbedPictures((PICTURES[0], "x" * 11)))
        long = EmbedPictures(
            (PICTURES[0], "a b c d e"), options=TextOptions(truncation=Truncation(False, max_tokens=4))
        )
        with pytest.raises(InputTooLong):
            await mill.run(long)


async def test_a_request_has_so_many_pictures_and_any_texts(folder: Path, cache: Path) -> None:
    config = MillConfig(cache_dir=cache, inputs=InputConfig(max_pictures=2))
    async with Mill(folder, config) as mill:
        assert len((await mill.run(EmbedPictures((*PICTURES[:2], "cat", "dog")))).embeddings) == 4
        with pytest.raises(InvalidRequest, match="`input` has 3 pictures; at most 2 are accepted") as caught:
            await mill.run(EmbedPictures((*PICTURES[:3], "cat")))
        assert caught.value.field == "input"


async def test_a_url_is_fetched_for_a_request_that_is_not_refused(mill: Mill) -> None:
    asked: list[str] = []

    async def fetch(urls: Sequence[PictureUrl]) -> list[Picture]:
        asked.extend(each.url for each in urls)
        return [PICTURES[int(each.url)] for each in urls]

    urls = PictureUrl("2", "a"), PictureUrl("0", "b")
    mixed = EmbedPictures((urls[0], "cat", PICTURES[1], urls[1]))
    found = await mill.answer(mixed, Caller(fetch=fetch))
    expected = await mill.run(EmbedPictures((PICTURES[2], "cat", PICTURES[1], PICTURES[0])))
    assert np.abs(found.embeddings - expected.embeddings).max() < 1e-5
    assert asked == ["2", "0"]
    with pytest.raises(InvalidRequest, match="`a` is a URL, and none is fetched here") as caught:
        await mill.run(mixed)
    assert caught.value.field == "a"
    long = replace(mixed, options=TextOptions(truncation=Truncation(False, max_tokens=2)))
    with pytest.raises(InputTooLong):
        await mill.answer(long, Caller(fetch=fetch))
    assert asked == ["2", "0"]


@pytest.mark.parametrize("full", ["texts", "pictures"])
async def test_a_request_is_refused_before_any_work_whichever_side_is_full(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    async def fetch(urls: Sequence[PictureUrl]) -> list[Picture]:
        raise AssertionError

    loaded = mill._loaded
    assert loaded is not None
    assert loaded.pictures is not None
    asked: list[int] = []

    def refuse(client: str | None, most_tokens: int, priority: object) -> None:
        asked.append(most_tokens)
        raise QueueFull("full", retry_after_s=1.0)

    side = loaded.documents if full == "texts" else loaded.pictures
    monkeypatch.setattr(side.dispatcher, "refuse_if_full", refuse)
    with pytest.raises(QueueFull):
        await mill.answer(EmbedPictures((PictureUrl("0", "a"), "cat")), Caller(fetch=fetch))
    assert asked == [11 if full == "texts" else 17]
    only: tuple[Picture | str, ...] = (PICTURES[0],) if full == "texts" else ("cat",)
    assert len((await mill.answer(EmbedPictures(only), Caller())).embeddings) == 1


async def test_a_request_whose_time_is_over_has_its_pictures_neither_fetched_nor_decoded(mill: Mill) -> None:
    is_cancelled = []

    async def fetch(urls: Sequence[PictureUrl]) -> list[Picture]:
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            is_cancelled.append(True)
            raise

    with pytest.raises(DeadlineExceeded, match="before its pictures were decoded"):
        await mill.answer(EmbedPictures((PictureUrl("0", "a"),)), Caller(timeout_s=0.05, fetch=fetch))
    assert is_cancelled == [True]
    with pytest.raises(DeadlineExceeded):
        await mill.answer(EmbedPictures(PICTURES), Caller(timeout_s=1e-9))
    assert mill.text_counts.open == 0


async def test_pictures_wait_within_a_limit_on_tokens(folder: Path, cache: Path) -> None:
    config = MillConfig(cache_dir=cache, queue=QueueConfig(max_queue_tokens=40))
    async with Mill(folder, config) as mill:
        assert len((await mill.run(EmbedPictures(PICTURES[:2]))).embeddings) == 2
        with pytest.raises(RequestTooLarge):
            await mill.run(EmbedPictures(PICTURES[:3]), wait_for_room=False)
        many = (mill.run(EmbedPictures(PICTURES[:2])) for _ in range(20))
        assert len(await asyncio.gather(*many)) == 20  # which wait for room


async def test_a_full_queue_refuses_pictures_if_nobody_waits_for_room(folder: Path, cache: Path) -> None:
    config = MillConfig(cache_dir=cache, queue=QueueConfig(max_queue_tokens=40))
    async with Mill(folder, config) as mill:
        calls = (mill.run(EmbedPictures(PICTURES[:2]), wait_for_room=False) for _ in range(30))
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, QueueFull) or not isinstance(end, BaseException) for end in ends), ends
    assert any(not isinstance(end, BaseException) for end in ends)


async def test_the_times_of_a_request_are_recorded_and_it_tells_of_its_admission(mill: Mill) -> None:
    timeline, admitted = Timeline(), []
    caller = Caller(timeline=timeline, on_admission=lambda: admitted.append(True))
    result = await mill.answer(EmbedPictures((*PICTURES, "cat")), caller)
    assert admitted == [True]
    assert result.timings.total_s >= result.timings.tokenize_s > 0
    (run,) = timeline.runs
    assert run.tokens == sum(result.token_counts)


async def test_pictures_that_wait_when_a_mill_closes_fail_with_that_reason(folder: Path, cache: Path) -> None:
    mill = Mill(folder, MillConfig(cache_dir=cache))
    await mill.start()
    calls = [asyncio.create_task(mill.run(EmbedPictures(PICTURES))) for _ in range(20)]
    await asyncio.sleep(0)
    await mill.close()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, ShuttingDown) or not isinstance(end, BaseException) for end in ends), ends
    assert any(isinstance(end, ShuttingDown) for end in ends)


async def test_a_cancelled_request_leaves_nothing_behind(mill: Mill) -> None:
    call = asyncio.create_task(mill.run(EmbedPictures(PICTURES * 20)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len((await mill.run(EmbedPictures(PICTURES))).embeddings) == 4
    assert mill.text_counts.open == 0
