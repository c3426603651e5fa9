"""A picture whose embedding is kept is neither decoded nor computed again, and its answer is the same."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.drawn_pictures import draw_picture, write_picture
from support.two_towers import save_clip
from vecmill import ClassifyByLabels, Embed, EmbedPictures, Mill, MillConfig, Picture
from vecmill.errors import InputTooLong, InvalidRequest
from vecmill.pictures.picture_decoder import PictureDecoder
from vecmill.requests import TextOptions, Truncation
from vecmill.results import EmbedResult
from vecmill.values.embedding_cache import EmbeddingCache
from vecmill.values.picture import PictureUrl
from vecmill_server.service.embedding_cache.memory_tier import MemoryTier
from vecmill_server.service.embedding_cache.tiered_cache import TieredCache

pytestmark = pytest.mark.promise("never-an-old-vector")

RED, BLUE, GREEN = (
    Picture(write_picture(draw_picture("RGB", 40, 30 + seed, seed), "PNG")) for seed in range(3)
)
BROKEN = Picture(RED.data[:60])
# Rounding of calls with other pictures beside them.
SAME = 2e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


@pytest.fixture
def cache() -> TieredCache:
    return TieredCache(MemoryTier(2**24))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The files that were decoded."""
    found: list[bytes] = []
    read = PictureDecoder.read_each

    def note(self: PictureDecoder, pictures: Sequence[bytes], *others: object, **named: object) -> object:
        found.extend(pictures)
        return read(self, pictures, *others, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(PictureDecoder, "read_each", note)
    return found


def make_mill(folder: Path, cache: EmbeddingCache | None) -> Mill:
    mill = Mill(folder, MillConfig(cores=1))
    mill.embedding_cache = cache
    return mill


@pytest.fixture
async def mill(folder: Path, cache: TieredCache) -> AsyncIterator[Mill]:
    async with make_mill(folder, cache) as mill:
        yield mill


def assert_same(found: EmbedResult, expected: EmbedResult) -> None:
    np.testing.assert_allclose(found.embeddings, expected.embeddings, atol=SAME)
    assert found.token_counts == expected.token_counts
    assert found.pixel_count == expected.pixel_count
    assert found.truncated == expected.truncated


async def test_a_picture_is_decoded_and_computed_once(mill: Mill, decoded: list[bytes]) -> None:
    first = await mill.run(EmbedPictures((RED, BLUE)))
    second = await mill.run(EmbedPictures((BLUE, RED, RED)))
    assert (first.cached_count, second.cached_count) == (0, 3)
    assert decoded == [RED.data, BLUE.data]
    np.testing.assert_array_equal(second.embeddings, first.embeddings[[1, 0, 0]])
    assert second.pixel_count * 2 == first.pixel_count * 3
    assert second.timings.inference_s == second.timings.queue_s == 0


async def test_only_what_is_missing_is_computed_and_answers_are_in_order(
    mill: Mill, folder: Path, decoded: list[bytes]
) -> None:
    long = "cat " * 100
    await mill.run(EmbedPictures((BLUE, "a dog")))
    decoded.clear()
    request = EmbedPictures((long, RED, "a dog", BLUE, "a cat", GREEN))
    found = await mill.run(request)
    assert found.cached_count == 2
    assert decoded == [RED.data, GREEN.data]
    async with make_mill(folder, None) as plain:
        expected = await plain.run(request)
    assert_same(found, expected)
    assert [each.index for each in found.truncated] == [0]
    times = found.timings
    assert times.tokenize_s + times.queue_s + times.inference_s <= times.total_s + 1e-6
    assert_same(await mill.run(request), expected)


async def test_a_text_is_the_same_with_pictures_and_without(mill: Mill) -> None:
    alone = await mill.run(Embed(("a cat",)))
    beside = await mill.run(EmbedPictures((RED, "a cat")))
    assert beside.cached_count == 1
    np.testing.assert_array_equal(beside.embeddings[1:], alone.embeddings)
    await mill.run(EmbedPictures(("a dog", RED)))
    assert (await mill.run(Embed(("a dog",)))).cached_count == 1


async def test_what_is_made_of_an_embedding_is_not_kept(mill: Mill) -> None:
    whole = await mill.run(EmbedPictures((RED,), normalize=False))
    unit = await mill.run(EmbedPictures((RED,), normalize=True, dimensions=4))
    assert unit.cached_count == 1
    expected = whole.embeddings[:, :4] / np.linalg.norm(whole.embeddings[:, :4])
    np.testing.assert_allclose(unit.embeddings, expected, atol=1e-6)


async def test_an_error_names_the_input_of_the_request(mill: Mill) -> None:
    await mill.run(EmbedPictures((RED, "a cat")))
    with pytest.raises(InvalidRequest, match=r"`input\[2\]` "):
        await mill.run(EmbedPictures((RED, "a cat", BROKEN)))
    no_cut = TextOptions(truncation=Truncation(is_allowed=False))
    await mill.run(EmbedPictures(("cat " * 100, RED)))
    with pytest.raises(InputTooLong, match=r"`input\[1\]` "):  # although it is kept, cut off
        await mill.run(EmbedPictures((RED, "cat " * 100), options=no_cut))


async def test_a_refused_picture_is_not_kept(mill: Mill, decoded: list[bytes]) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            await mill.run(EmbedPictures((BROKEN,)))
    assert decoded == [BROKEN.data] * 2


async def test_owners_do_not_find_each_others_pictures(mill: Mill) -> None:
    counts = [
        (await mill.run(EmbedPictures((RED,), owner=owner))).cached_count
        for owner in ("a", "b", None, "a", "b")
    ]
    assert counts == [0, 0, 0, 1, 1]


async def test_other_weights_and_other_sizes_of_pictures_find_nothing(
    folder: Path, cache: TieredCache, tmp_path: Path
) -> None:
    others = [save_clip(tmp_path / "weights", seed=1), save_clip(tmp_path / "settings")]
    settings = others[1] / "preprocessor_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "resample": 2}))
    for directory, expected in ((folder, 0), *((other, 0) for other in others), (folder, 1)):
        async with make_mill(directory, cache) as mill:
            assert (await mill.run(EmbedPictures((RED,)))).cached_count == expected, directory


async def test_a_picture_that_is_named_by_a_url_is_fetched_and_computed_each_time(
    mill: Mill, decoded: list[bytes]
) -> None:
    content = iter((RED, GREEN))

    async def fetch(urls: Sequence[PictureUrl]) -> list[Picture]:
        return [next(content) for _ in urls]

    expected = await mill.run(EmbedPictures((RED, "a cat", BLUE)))
    decoded.clear()
    url = PictureUrl(url="https://images.test/now.png", field="input[0]")
    request = EmbedPictures((url, "a cat", BLUE))
    first, second = [await mill.answer(request, replace(request.caller, fetch=fetch)) for _ in range(2)]
    assert first.cached_count == second.cached_count == 2
    assert decoded == [RED.data, GREEN.data]
    np.testing.assert_allclose(first.embeddings, expected.embeddings, atol=SAME)
    assert np.abs(second.embeddings[0] - first.embeddings[0]).max() > 100 * SAME


async def test_labels_of_pictures_are_computed_once(mill: Mill) -> None:
    request = ClassifyByLabels((RED, BLUE), ("cat", "dog"))
    first = await mill.run(request)
    computed = mill.text_counts.admitted
    second = await mill.run(request)
    assert mill.text_counts.admitted == computed
    for one, other in zip(first.scores, second.scores, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
