"""Opens the files of pictures, and decodes them within limits.

The formats are those that web clients send: PNG, JPEG, WebP, and GIF, of which the first frame counts. A
file is what its first bytes say, whatever its name or media type, and each format has one decoder. BMP and
TIFF are left out: a TIFF may contain almost any other format, and Pillow decodes a compressed BMP in Python,
a pixel at a time.

The decoders are Pillow's classes themselves. `Image.open` calls the same ones, but warns of large pictures,
which the limits refuse, and has the pictures behind the first one of a JPEG file looked for.
"""

import io
from collections.abc import Mapping

from PIL import ImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from vecmill.errors import InvalidRequest, one_line
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_formats import FORMATS, find_format
from vecmill.pictures.picture_limits import PictureLimits, unreadable
from vecmill.pictures.resizing import resize_picture

_ORIENTATION = 274  # the EXIF tag

_PIXEL_BYTES = 4  # of a decoded picture, in all modes at most
_CONVERTED_BYTES = 5  # with one colour of it
_WEBP_BYTES = 12  # two buffers of the decoder, and a copy of the pixels
_COEFFICIENT_BYTES = 2  # of JPEG, where they are needed all at once
_SCAN = b"\xff\xda"  # the marker of JPEG before compressed data


class _FirstFrame(WebPImageFile):
    """A WebP file whose decoder, with its two buffers, is freed before Pillow makes the picture."""

    def _get_next(self) -> tuple[bytes, int, int]:
        frame = super()._get_next()
        del self._decoder
        return frame


_DECODERS: Mapping[str, type[ImageFile.ImageFile]] = {
    "PNG": PngImageFile,
    "JPEG": JpegImageFile,
    "WebP": _FirstFrame,
    "GIF": GifImageFile,
}


def decode(data: bytes, geometry: PictureGeometry, limits: PictureLimits) -> bytes:
    """Return the pixels of a file by rows, each as red, green and blue, in the size of `geometry`.

    Raises `InvalidRequest` for all that is wrong with the file.
    """
    limits.check_bytes(len(data))
    name, decoder = _find_decoder(data)
    try:
        image = _open(data, decoder, geometry, limits)
        image.load()
        return resize_picture(image, _read_orientation(image), geometry).tobytes()
    except InvalidRequest:
        raise
    except MemoryError:
        pass  # it keeps what was allocated, and another error may need some of it
    except Exception as error:  # whatever a decoder raises, it is about the data
        reason = one_line(error).rstrip(". ") or type(error).__name__
        raise unreadable(f"is a {name} file that cannot be decoded: {reason}") from error
    raise unreadable("takes more memory to decode than it may have. Make it smaller")


def _find_decoder(data: bytes) -> tuple[str, type[ImageFile.ImageFile]]:
    name = find_format(data)
    if name is None:
        raise unreadable(f"is no {FORMATS} file. Convert it to one of them")
    return name, _DECODERS[name]


def _open(
    data: bytes, decoder: type[ImageFile.ImageFile], geometry: PictureGeometry, limits: PictureLimits
) -> ImageFile.ImageFile:
    """Read the header, and check what the pixels will take."""
    if decoder is _FirstFrame:  # Pillow has the buffers made when it reads the header
        limits.check_sides(*_read_webp_size(data))
    image = decoder(io.BytesIO(data))
    limits.check_sides(*image.size)
    resizing = max(_count_resized(geometry, *image.size), _count_resized(geometry, *reversed(image.size)))
    limits.check_resized(image.width, image.height, max(geometry.resize(image.height, image.width)))
    pixels = image.width * image.height * max(_pixel_bytes(image, data), _CONVERTED_BYTES)
    limits.check_memory(len(data) + pixels + _PIXEL_BYTES * resizing)
    return image


def _count_resized(geometry: PictureGeometry, height: int, width: int) -> int:
    """Return the pixels that resizing takes: of the result, and of a picture of which one side is resized."""
    resized_height, resized_width = geometry.resize(height, width)
    return resized_height * resized_width + max(resized_height * width, height * resized_width)


def _read_webp_size(data: bytes) -> tuple[int, int]:
    """Return the width and the height in the header of a WebP file, of each of its three kinds."""
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


def _pixel_bytes(image: ImageFile.ImageFile, data: bytes) -> int:
    """Return the bytes of memory that decoding takes for each pixel."""
    if isinstance(image, _FirstFrame):
        return _WEBP_BYTES
    if not isinstance(image, JpegImageFile) or not _is_buffered(image, data):
        return _PIXEL_BYTES
    factors = [across * down for _, across, down, _ in image.layer]
    return _PIXEL_BYTES + _COEFFICIENT_BYTES * -(-sum(factors) // max(factors))


def _is_buffered(image: JpegImageFile, data: bytes) -> bool:
    """Return whether libjpeg keeps the coefficients of all pixels: some of them come in a later scan."""
    assert image.fp is not None
    # A scan of all layers has a header of this size, and Pillow has just read the first header.
    place = image.fp.tell() - 8 - 2 * image.layers
    return "progressive" in image.info or data[place : place + 2] != _SCAN


def _read_orientation(image: ImageFile.ImageFile) -> int:
    """Return the EXIF orientation; 1, which is upright, if the EXIF data are broken."""
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except Exception:
        return 1
    return found if isinstance(found, int) else 1
