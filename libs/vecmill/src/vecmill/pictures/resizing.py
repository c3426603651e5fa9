"""Turns, converts, resizes and crops a decoded picture, with little memory beside the picture.

Pillow needs a second copy to turn a picture, and to convert it, which a large one does not get: each colour
is converted and turned by itself, strip by strip, and resized. Pillow resizes colours independently of each
other, so the pixels are the same. Strips cannot be resized: whether rows or columns come first depends on the
size of the whole picture.

The conversion is that of transformers: `load_image` drops opacities; what Pillow then still calls
transparent, one colour of a palette or of the header, becomes white in `convert_to_rgb`.

Source of the rules: transformers 5.23, `image_utils.py`, `image_transforms.py` and
`image_processing_backends.py`.
"""

from dataclasses import dataclass

from PIL import Image

from vecmill.pictures.geometry import PictureGeometry

# Larger pictures are converted and turned by colours. A second copy of this one takes 16 MB.
WHOLE_PIXELS = 2**22
# The fixed cost of a strip of this size is small.
STRIP_PIXELS = 2**18


@dataclass(frozen=True, slots=True)
class _Turn:
    """How a picture becomes upright. Its rows are rows or columns of the file, from the first or the last."""

    method: Image.Transpose
    of_columns: bool
    from_end: bool


# By EXIF orientation.
_TURNS = {
    2: _Turn(Image.Transpose.FLIP_LEFT_RIGHT, of_columns=False, from_end=False),
    3: _Turn(Image.Transpose.ROTATE_180, of_columns=False, from_end=True),
    4: _Turn(Image.Transpose.FLIP_TOP_BOTTOM, of_columns=False, from_end=True),
    5: _Turn(Image.Transpose.TRANSPOSE, of_columns=True, from_end=False),
    6: _Turn(Image.Transpose.ROTATE_270, of_columns=True, from_end=False),
    7: _Turn(Image.Transpose.TRANSVERSE, of_columns=True, from_end=True),
    8: _Turn(Image.Transpose.ROTATE_90, of_columns=True, from_end=True),
}


def resize_picture(image: Image.Image, orientation: int, geometry: PictureGeometry) -> Image.Image:
    """Return a loaded picture, turned by its EXIF orientation, as RGB of the size of `geometry`."""
    turn = _TURNS.get(orientation)
    is_done = turn is None and image.mode == "RGB" and "transparency" not in image.info
    if is_done or image.width * image.height <= WHOLE_PIXELS:
        upright = image if turn is None else image.transpose(turn.method)
        return _resize(upright if is_done else _convert(upright), geometry)
    colours = [_resize(_extract_colour(image, colour, turn), geometry) for colour in range(3)]
    return Image.merge("RGB", colours)


def _resize(image: Image.Image, geometry: PictureGeometry) -> Image.Image:
    """Return an upright picture, or one colour of it, resized and cropped."""
    height, width = geometry.resize(image.height, image.width)
    resized = image.resize((width, height), Image.Resampling(geometry.resample))
    rows, columns = geometry.cut(height, width)
    kept = resized.crop((columns.start, rows.start, columns.end, rows.end))
    if kept.size == geometry.size[::-1]:
        return kept
    framed = Image.new(image.mode, geometry.size[::-1])
    framed.paste(kept, (columns.at, rows.at))
    return framed


def _extract_colour(image: Image.Image, colour: int, turn: _Turn | None) -> Image.Image:
    """Return one colour of the upright picture. Its strips are rows, or columns that become rows."""
    of_columns = turn is not None and turn.of_columns
    width, height = (image.height, image.width) if of_columns else image.size
    upright = Image.new("L", (width, height))
    step = max(1, STRIP_PIXELS // width)
    for top in range(0, height, step):
        bottom = min(top + step, height)
        first, end = (height - bottom, height - top) if turn is not None and turn.from_end else (top, bottom)
        strip = image.crop((first, 0, end, width) if of_columns else (0, first, width, end))
        strip = _convert(strip).getchannel(colour)
        upright.paste(strip if turn is None else strip.transpose(turn.method), (0, top))
    return upright


def _convert(image: Image.Image) -> Image.Image:
    if isinstance(image.info.get("transparency"), bytes):
        # Opacities of a palette. To convert drops them too, but with a warning.
        del image.info["transparency"]
    image = image.convert("RGB")
    if image.info.get("transparency") is None:
        return image
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
