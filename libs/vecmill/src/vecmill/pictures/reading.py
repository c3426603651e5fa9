"""Reads the file of one picture into the pixels that a model reads, in this process."""

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import MissingExtra
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.values.messages import pip_command


def read_picture(data: bytes, geometry: PictureGeometry, limits: PictureLimits) -> NDArray[np.uint8]:
    """Return the pixels of a file, uint8 of shape (height, width, 3), which cannot be written to.

    They are those that transformers' PIL processors make of a path, a URL or a base64 text, before they
    rescale:

    - The picture is turned upright by its EXIF orientation, or by that of its XMP data, as transformers'
      `load_image` does, and with it sentence-transformers. A program that opens a file with Pillow itself,
      and passes the image, has it as it is stored. Broken EXIF data count as none; the reference fails.
    - The opacity of single pixels is dropped, and a colour that is transparent as a whole becomes white,
      which is what `load_image` and the processor do together.
    - Of a GIF file, and of any animation, the first frame counts.

    Processors that compute with torchvision resize otherwise: some values differ by one or two.

    Raises `InvalidRequest`, with the field `picture`, for all that is wrong with the file, and for all that
    `limits` refuse; `MissingExtra` without Pillow. `limits.max_seconds` does not hold here.
    """
    return shape_pixels(read_pixels(data, geometry, limits), geometry)


def read_pixels(data: bytes, geometry: PictureGeometry, limits: PictureLimits) -> bytes:
    """Return the pixels of `read_picture` as bytes, by rows."""
    try:
        from vecmill.pictures.picture_files import decode
    except ImportError as error:
        raise missing_pillow() from error
    return decode(data, geometry, limits)


def shape_pixels(pixels: bytes, geometry: PictureGeometry) -> NDArray[np.uint8]:
    """Return decoded pixels as an array of shape (height, width, 3), without a copy."""
    return np.frombuffer(pixels, dtype=np.uint8).reshape(*geometry.size, 3)


def missing_pillow() -> MissingExtra:
    """Return the error of a process that has no Pillow."""
    return MissingExtra(f"Pictures need Pillow: install it with {pip_command('install', 'vecmill[images]')}.")
