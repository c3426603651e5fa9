"""Whatever a file is, its sender gets pixels or an error of its own, within the memory of one picture."""

import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from PIL import Image

from support.drawn_pictures import ORIENTATION, write_picture
from support.hostile_pictures import hostile_pictures, mutated_pictures, png, rows, scans
from vecmill.errors import InvalidRequest, VecmillError
from vecmill.hardware.system_calls import is_linux
from vecmill.models.picture_settings import read_picture_settings
from vecmill.pictures.picture_decoder import PictureDecoder, Pixels
from vecmill.pictures.picture_limits import PictureLimits

GEOMETRY = read_picture_settings(
    {"image_processor_type": "CLIPImageProcessor", "size": 16, "crop_size": 16},
    "file",
    image_size=16,
    processor="CLIPImageProcessor",
).geometry
MOST_MB = 200

READ = """
APNG; GIF 100,000 comments; GIF and a script; GIF animated; GIF of a pixel; JPEG CMYK; JPEG of a pixel;
JPEG EXIF in 20 segments; JPEG EXIF that overlaps; JPEG and a page; JPEG index of pictures; JPEG padded;
PNG 16 bits a colour; PNG 16 bits with opacity; PNG EXIF that overlaps; PNG and a zip; PNG of a pixel;
PNG more pixels than it has; PNG text that is EXIF; WEBP of a pixel; WebP EXIF that overlaps
"""
REFUSED = {
    "empty": "is empty",
    "text": "is no PNG, JPEG, WebP or GIF file",
    "SVG": "is no PNG, JPEG, WebP or GIF file",
    "TIFF": "is no PNG, JPEG, WebP or GIF file",
    "PNG 50,000 x 50,000": "has 50000 x 50000 pixels; at most 30000000 are accepted",
    "PNG a bomb": "has 8000 x 8000 pixels; at most 30000000 are accepted",
    "PNG 2**31 - 1 a side": "a side of at most 65535 pixels is accepted",
    "PNG 1 x 1,000,000": "a side of at most 65535 pixels is accepted",
    "PNG 50,000 x 1": "is so narrow that resizing it",
    "PNG pixels cut": "is a PNG file that cannot be decoded: image file is truncated",
    "PNG 66 texts of a megabyte": "Too much memory used in text chunks",
    "PNG text that unpacks to 30 MB": "Decompressed data too large",
    "JPEG half": "is a JPEG file that cannot be decoded: Truncated",
    "JPEG 65,500 a side": "has 65500 x 65500 pixels; at most 30000000 are accepted",
    "JPEG 12 bits": "is a JPEG file that cannot be decoded: cannot handle 12-bit layers",
    "GIF 65,535 a side": "has 65535 x 65535 pixels; at most 30000000 are accepted",
    "GIF frame larger than the screen": "exceeds limit",
    "WebP half": "is a WebP file that cannot be decoded",
    "WebP lossless 16,384 a side": "has 16384 x 16384 pixels; at most 30000000 are accepted",
    "WebP canvas of 2**24 a side": "a side of at most 65535 pixels is accepted",
}


def most_memory_mb(decoder: PictureDecoder) -> float:
    """The most memory that the child had; 0 where it is not told."""
    if not is_linux():
        return 0.0
    status = Path(f"/proc/{decoder.process_ids[0]}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1000


def assert_answered(results: Iterable[Pixels | VecmillError]) -> None:
    for result in results:
        if isinstance(result, VecmillError):
            assert type(result) is InvalidRequest
            assert result.field == "picture"
            assert re.fullmatch(r"`picture` [^\n]{5,700}\.", result.message)
            # The child may open no file any more, and needs none.
            assert "open files" not in result.message
            assert "ended the process" not in result.message
        else:
            assert result.shape == (16, 16, 3)


@pytest.fixture
async def decoder() -> AsyncIterator[PictureDecoder]:
    found = PictureDecoder()
    yield found
    await found.close()


async def test_each_file_made_by_hand_has_pixels_or_its_own_error(decoder: PictureDecoder) -> None:
    files = hostile_pictures()
    assert len(files) >= 100
    results = dict(zip(files, await decoder.read_each(list(files.values()), GEOMETRY), strict=True))
    assert_answered(results.values())
    read = {name.replace("\n", " ").strip() for name in READ.split(";")}
    assert {name for name in read if not isinstance(results[name], VecmillError)} == read
    messages = {name: str(results[name]) for name in REFUSED}
    assert {name: text for name, text in messages.items() if REFUSED[name] not in text} == {}
    assert most_memory_mb(decoder) < MOST_MB


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 300), pytest.param(2, 10_000, marks=pytest.mark.full)], ids=str
)
async def test_changed_files_have_pixels_or_an_error(decoder: PictureDecoder, seed: int, count: int) -> None:
    files = list(mutated_pictures(seed, count))
    read = 0
    for start in range(0, count, 100):
        results = await decoder.read_each(files[start : start + 100], GEOMETRY)
        assert_answered(results)
        read += sum(not isinstance(result, VecmillError) for result in results)
    # Both happen often.
    assert 0.1 * count < read < 0.9 * count
    assert most_memory_mb(decoder) < MOST_MB


# A fifth of the pixels that are accepted as a rule, of which all that is large is large too.
SMALLER = PictureLimits(max_pixels=6_000_000)


async def test_a_picture_of_the_limits_is_read_within_the_memory_that_it_has() -> None:
    decoder = PictureDecoder(SMALLER)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    turned = write_picture(Image.new("RGB", (3000, 2000), "red"), "JPEG", exif=exif)
    with_opacity = png(2000, 3000, rows(8000, 3000), colour=6)
    try:
        results = await decoder.read_each([turned, with_opacity], GEOMETRY)
        assert_answered(results)
        assert [type(result) for result in results if isinstance(result, VecmillError)] == []
        assert most_memory_mb(decoder) < 40 + SMALLER.memory_bytes / 1e6
    finally:
        await decoder.close()


@pytest.mark.full
async def test_the_largest_pictures_are_read_within_the_memory_that_they_have(
    decoder: PictureDecoder,
) -> None:
    pictures = [
        png(6000, 4900, rows(24_000, 4900), colour=6),
        png(6000, 4900, rows(36_000, 4900), depth=16, colour=2),
        png(6000, 4900, rows(12_000, 4900), depth=16),
        png(6000, 4900, rows(6000, 4900), colour=0, interlace=0),
        write_picture(Image.new("CMYK", (6000, 4900)), "JPEG"),
        write_picture(Image.new("RGB", (4400, 3000)), "WEBP", method=0),
        write_picture(Image.new("RGB", (5000, 4000)), "JPEG", progressive=True),
        write_picture(Image.new("P", (6000, 4900)), "GIF"),
    ]
    results = await decoder.read_each(pictures, GEOMETRY)
    assert [str(result) for result in results if isinstance(result, VecmillError)] == []
    assert most_memory_mb(decoder) < MOST_MB


async def test_formats_that_take_more_memory_have_fewer_pixels(decoder: PictureDecoder) -> None:
    large = write_picture(Image.new("RGB", (5000, 4000)), "JPEG", progressive=True, subsampling=0)
    found = await PictureDecoder(PictureLimits(), processes=0).read_each([large], GEOMETRY)
    assert re.search(r"takes 19\d MiB of memory to decode; at most 167 are accepted", str(found[0]))


@pytest.mark.linux
async def test_a_file_of_many_small_parts_gets_no_more_memory() -> None:
    """Pillow keeps every comment of a GIF file, in ten times its bytes."""
    decoder = PictureDecoder(PictureLimits(max_pixels=10_000))
    comments = b"GIF89a\1\0\1\0\0\0\0" + b"!\xfe\2ab\0" * 800_000
    try:
        results = await decoder.read_each([comments, hostile_pictures()["GIF of a pixel"]], GEOMETRY)
        assert "takes more memory to decode than it may have" in str(results[0])
        assert not isinstance(results[1], VecmillError)
        assert most_memory_mb(decoder) < 80
    finally:
        await decoder.close()


async def test_a_picture_that_takes_too_long_is_refused_and_the_next_one_read() -> None:
    decoder = PictureDecoder(PictureLimits(max_seconds=0.5))
    try:
        results = await decoder.read_each([scans(2000), hostile_pictures()["PNG of a pixel"]], GEOMETRY)
        assert str(results[0]) == "`picture` takes more than 0.5 seconds to decode."
        assert not isinstance(results[1], VecmillError)
    finally:
        await decoder.close()
