"""Pictures that tests draw, and their files: the same bytes in every run with the same Pillow."""

import io
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

ORIENTATION = 274  # the EXIF tag


def draw_pixels(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return pixels of shape (height, width, 3): slopes of colour, sharp bars, and noise."""
    random = np.random.default_rng([seed, height, width])
    down, across = np.mgrid[0:height, 0:width]
    slopes = np.stack([255 * down / height, 255 * across / width, 127 + 64 * (down + across) / width], axis=2)
    bars = 80.0 * ((across // 7 + down // 11 + seed) % 3)
    noise = random.integers(-20, 20, (height, width, 3))
    pixels: npt.NDArray[np.uint8] = (slopes + bars[:, :, None] + noise).clip(0, 255).astype(np.uint8)
    return pixels


def draw_picture(mode: str, height: int, width: int, seed: int = 0) -> Image.Image:
    """Return a picture of one of Pillow's modes."""
    pixels = draw_pixels(height, width, seed)
    image = Image.fromarray(pixels)
    if mode in ("RGBA", "LA"):
        opacity = Image.fromarray(draw_pixels(height, width, seed + 1)[:, :, 0])
        image = image.convert("L") if mode == "LA" else image
        image.putalpha(opacity)
        return image
    if mode == "P":
        return image.quantize(17)
    if mode == "I;16":
        return Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257 + pixels[:, :, 1])
    return image.convert(mode)


def write_picture(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Return the file of a picture, in a format of Pillow."""
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def write_turned(kind: str, orientation: int, height: int = 40, width: int = 60) -> bytes:
    """Return a file whose EXIF data say how the camera was held."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return write_picture(draw_picture("RGB", height, width, orientation), kind, exif=exif)


@cache
def files_of_all_kinds() -> Mapping[str, bytes]:
    """Return a file for each mode, format and peculiarity that a decoder treats in its own way, by name."""
    found: dict[str, bytes] = {}
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        found[f"PNG {mode}"] = write_picture(draw_picture(mode, 45, 70), "PNG")
    for mode in ("L", "RGB", "CMYK"):
        found[f"JPEG {mode}"] = write_picture(draw_picture(mode, 45, 70), "JPEG")
    for mode in ("RGB", "RGBA"):
        found[f"WebP {mode}"] = write_picture(draw_picture(mode, 45, 70), "WEBP")
        found[f"WebP lossless {mode}"] = write_picture(draw_picture(mode, 45, 70), "WEBP", lossless=True)
    for mode in ("1", "L", "P", "RGB"):
        found[f"GIF {mode}"] = write_picture(draw_picture(mode, 45, 70), "GIF")
    rgb, palette = draw_picture("RGB", 45, 70), draw_picture("P", 45, 70)
    found["JPEG progressive"] = write_picture(rgb, "JPEG", progressive=True)
    found["JPEG 4:4:4"] = write_picture(rgb, "JPEG", subsampling=0, quality=95)
    found["PNG one transparent index"] = write_picture(palette, "PNG", transparency=3)
    found["PNG opacities of a palette"] = write_picture(palette, "PNG", transparency=bytes(range(0, 255, 15)))
    found["PNG one transparent colour"] = write_picture(rgb, "PNG", transparency=rgb.getpixel((30, 20)))
    grey = draw_picture("L", 45, 70)
    found["PNG one transparent grey"] = write_picture(grey, "PNG", transparency=grey.getpixel((30, 20)))
    found["GIF one transparent index"] = write_picture(palette, "GIF", transparency=3)
    frames = [draw_picture("RGB", 45, 70, seed) for seed in (1, 2)]
    for kind, name in (
        ("PNG", "APNG"),
        ("GIF", "GIF animated"),
        ("WEBP", "WebP animated"),
        ("MPO", "JPEG MPO"),
    ):
        found[name] = write_picture(frames[0], kind, save_all=True, append_images=frames[1:])
    for orientation in range(1, 9):
        found[f"JPEG orientation {orientation}"] = write_turned("JPEG", orientation)
    found["PNG orientation 6"] = write_turned("PNG", 6)
    found["WebP orientation 7"] = write_turned("WEBP", 7)
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a tiff:Orientation="8"/></x:xmpmeta>'
    found["JPEG XMP orientation 8"] = write_picture(rgb, "JPEG", xmp=xmp)
    return found
