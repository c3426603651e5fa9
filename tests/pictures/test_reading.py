"""The pixels of a picture are those of transformers' PIL processors, all of them."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from support.drawn_pictures import draw_picture, files_of_all_kinds, write_picture, write_turned
from support.picture_processors import digest_pixels, digest_processed
from vecmill.errors import InvalidRequest, MissingExtra
from vecmill.models.picture_settings import read_picture_settings
from vecmill.pictures import resizing
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.pictures.reading import read_picture

LIMITS = PictureLimits()

SIZES = [
    (1, 1), (1, 7), (7, 1), (2, 3), (20, 10), (10, 20), (31, 32), (32, 32), (32, 33), (60, 40), (40, 60),
    (33, 100), (100, 33), (5, 200), (200, 5),
]  # fmt: skip


def clip(side: int, **change: Any) -> Mapping[str, Any]:
    return {"image_processor_type": "CLIPImageProcessor", "size": side, "crop_size": side, **change}


def siglip(side: int, **change: Any) -> Mapping[str, Any]:
    size = {"height": side, "width": side}
    return {"image_processor_type": "SiglipImageProcessor", "size": size, **change}


def read_all(config: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, str]:
    crop = config.get("crop_size") or config["size"]["height"]
    settings = read_picture_settings(
        config, "preprocessor_config.json", image_size=crop, processor="CLIPImageProcessor"
    )
    return {
        name: digest_pixels(read_picture(data, settings.geometry, LIMITS)) for name, data in files.items()
    }


SMALL = {
    "clip": clip(32),
    "siglip": siglip(32),
    "siglip2": siglip(32, resample=2),
    "larger than the crop": clip(32, size={"shortest_edge": 37}),
    "smaller than the crop": clip(31, size={"shortest_edge": 20}),
    "not resized": clip(33, do_resize=False),
    **{f"filter {number}": clip(32, resample=number) for number in (0, 1, 2, 4, 5)},
}


@pytest.mark.parametrize("name", SMALL)
def test_pictures_of_all_sizes_have_the_pixels_of_transformers(name: str) -> None:
    files = {f"{size}": write_picture(draw_picture("RGB", *size), "PNG") for size in SIZES}
    assert read_all(SMALL[name], files) == digest_processed(SMALL[name], files)


@pytest.mark.parametrize("name", ["clip", "siglip", "not resized"])
def test_files_of_all_kinds_have_the_pixels_of_transformers(name: str) -> None:
    files = files_of_all_kinds()
    assert read_all(SMALL[name], files) == digest_processed(SMALL[name], files)


@pytest.mark.parametrize("name", ["clip", "siglip", "not resized"])
def test_large_pictures_read_by_colours_have_the_same_pixels(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resizing, "WHOLE_PIXELS", 0)
    monkeypatch.setattr(resizing, "STRIP_PIXELS", 500)
    files = files_of_all_kinds()
    assert read_all(SMALL[name], files) == digest_processed(SMALL[name], files)


@pytest.mark.parametrize("config", [clip(224), clip(336), siglip(384, resample=2)], ids=str)
def test_photos_have_the_pixels_of_transformers_in_the_sizes_of_models(config: Mapping[str, Any]) -> None:
    files = {
        "across": write_turned("JPEG", 1, 300, 400),
        "upright": write_turned("JPEG", 6, 300, 400),
        "square": write_picture(draw_picture("RGBA", 256, 256), "WEBP"),
    }
    assert read_all(config, files) == digest_processed(config, files)


def test_a_file_is_what_it_begins_with() -> None:
    """A JPEG file behind a PNG file, and the other way round: what is behind is not read."""
    first = write_picture(draw_picture("RGB", 9, 9, 1), "PNG")
    second = write_picture(draw_picture("RGB", 9, 9, 2), "JPEG")
    settings = read_picture_settings(
        siglip(9), "preprocessor_config.json", image_size=9, processor="CLIPImageProcessor"
    )
    for data, other in ((first, second), (second, first)):
        alone, both = (read_picture(file, settings.geometry, LIMITS) for file in (data, data + other))
        assert np.array_equal(alone, both)


def test_pixels_are_read_only() -> None:
    settings = read_picture_settings(
        siglip(9), "preprocessor_config.json", image_size=9, processor="CLIPImageProcessor"
    )
    pixels = read_picture(write_picture(draw_picture("RGB", 3, 3), "PNG"), settings.geometry, LIMITS)
    with pytest.raises(ValueError, match="read-only"):
        pixels[0, 0, 0] = 1


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data:UserWarning")
def test_broken_exif_data_count_as_none() -> None:
    upright, broken = (
        write_picture(draw_picture("RGB", 20, 30), "JPEG", exif=exif)
        for exif in (b"", b"Exif\0\0II*\0\xff\xff\xff\xff")
    )
    settings = read_picture_settings(
        siglip(9), "preprocessor_config.json", image_size=9, processor="CLIPImageProcessor"
    )
    expected = read_picture(upright, settings.geometry, LIMITS)
    assert np.array_equal(read_picture(broken, settings.geometry, LIMITS), expected)


def whole(image: Image.Image, geometry: PictureGeometry) -> npt.NDArray[np.uint8]:
    """What Pillow and NumPy make of an upright picture in the plainest way."""
    height, width = geometry.resize(image.height, image.width)
    resized = np.array(image.convert("RGB").resize((width, height), geometry.resample))
    frame = np.zeros((height + 2 * geometry.size[0], width + 2 * geometry.size[1], 3), np.uint8)
    frame[geometry.size[0] : -geometry.size[0], geometry.size[1] : -geometry.size[1]] = resized
    top, left = (
        (side + 2 * kept - kept) // 2 for side, kept in zip((height, width), geometry.size, strict=True)
    )
    return frame[top : top + geometry.size[0], left : left + geometry.size[1]]


@pytest.mark.parametrize("seed", range(20))
def test_drawn_sizes_and_steps_give_what_the_plain_way_gives(seed: int) -> None:
    random = np.random.default_rng(seed)
    height, width, side, crop = (int(number) for number in random.integers(1, 90, 4))
    resized = side if seed % 2 else (side, int(random.integers(1, 90)))
    geometry = PictureGeometry(resized, int(random.integers(0, 6)), (crop, int(random.integers(1, 90))))
    image = draw_picture("RGB", height, width, seed)
    made = resizing.resize_picture(image, 1, geometry)
    assert np.array_equal(np.array(made), whole(image, geometry)), geometry


@pytest.mark.parametrize(
    ("height", "width", "message"),
    [
        (1, 50_000, "is so narrow that resizing it for this model makes a side of 450000 pixels"),
        (50_000, 1, "is so narrow that resizing it for this model makes a side of 450000 pixels"),
    ],
)
def test_narrow_pictures_are_refused_where_they_are_resized_by_their_shorter_side(
    height: int, width: int, message: str
) -> None:
    data = write_picture(draw_picture("L", height, width), "PNG")
    settings = read_picture_settings(
        clip(9), "preprocessor_config.json", image_size=9, processor="CLIPImageProcessor"
    )
    with pytest.raises(InvalidRequest, match=message):
        read_picture(data, settings.geometry, LIMITS)
    settings = read_picture_settings(
        siglip(9), "preprocessor_config.json", image_size=9, processor="CLIPImageProcessor"
    )
    assert read_picture(data, settings.geometry, LIMITS).shape == (9, 9, 3)


def test_without_pillow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vecmill.pictures.picture_files", None)
    settings = read_picture_settings(
        siglip(9), "preprocessor_config.json", image_size=9, processor="CLIPImageProcessor"
    )
    with pytest.raises(MissingExtra, match=r"Pictures need Pillow: install it with .*vecmill\[images\]"):
        read_picture(b"", settings.geometry, LIMITS)
