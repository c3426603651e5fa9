"""Files that no honest program writes, or that few readers expect: made by hand, and by chance."""

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np
from PIL import Image

from support.drawn_pictures import draw_picture, files_of_all_kinds, write_picture

PNG = b"\x89PNG\r\n\x1a\n"
END = struct.pack(">I4sI", 0, b"IEND", zlib.crc32(b"IEND"))


def chunk(kind: bytes, data: bytes, *, length: int | None = None, crc: int | None = None) -> bytes:
    """Return a chunk of PNG, with a wrong length or checksum if one is given."""
    checksum = zlib.crc32(kind + data) if crc is None else crc
    return (
        struct.pack(">I4s", len(data) if length is None else length, kind)
        + data
        + struct.pack(">I", checksum)
    )


def png(
    width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 0, interlace: int = 0
) -> bytes:
    """Return a PNG file of these chunks between its header and its end."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))
    return PNG + header + b"".join(chunks) + END


def rows(width_bytes: int, height: int) -> bytes:
    """Return the compressed data of black rows."""
    packer = zlib.compressobj(9)
    row = bytes(1 + width_bytes)
    return chunk(b"IDAT", b"".join(packer.compress(row) for _ in range(height)) + packer.flush())


def segment(marker: int, data: bytes) -> bytes:
    """Return a segment of JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def webp(*chunks: tuple[bytes, bytes], size: int | None = None) -> bytes:
    """Return a WebP file of these chunks."""
    body = b"WEBP" + b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body) if size is None else size) + body


def overlapping_exif(size: int) -> bytes:
    """Return EXIF data whose tags all have the same values, which are all of the data."""
    tags = size // 12 - 2
    entries = b"".join(struct.pack("<HHII", 1000 + tag, 7, size - 8, 8) for tag in range(tags))
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, tags) + entries


def jpeg_size(data: bytes, width: int, height: int) -> bytes:
    """Return a JPEG file whose header has another size."""
    place = next(data.index(marker) for marker in (b"\xff\xc0", b"\xff\xc2") if marker in data)
    return data[: place + 5] + struct.pack(">HH", height, width) + data[place + 9 :]


def scans(count: int) -> bytes:
    """Return a progressive JPEG file of many pixels and of many scans that change nothing."""
    data = jpeg_size(write_picture(Image.new("L", (8, 8)), "JPEG", progressive=True), 4000, 4000)
    start = data.rindex(b"\xff\xda")
    again = data[start : data.index(b"\xff\xd9", start)]
    return data[:start] + again * count + b"\xff\xd9"


@cache
def hostile_pictures() -> Mapping[str, bytes]:
    """Return files that a reader answers with pixels or an error, by what is peculiar about them."""
    return {**_no_pictures(), **_png_files(), **_jpeg_files(), **_gif_files(), **_webp_files(), **_unusual()}


def _no_pictures() -> dict[str, bytes]:
    small = draw_picture("RGB", 8, 8)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a", "a")
    return {
        "empty": b"",
        "a byte": b"\x89",
        "text": b"a picture",
        "zeros": bytes(1000),
        "HTML": b"<!doctype html><html></html>",
        "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
        "base64": b"iVBORw0KGgo=",
        "gzip": gzip.compress(write_picture(small, "PNG")),
        "zip": archive.getvalue(),
        "AVIF": b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf",
        "XPM with code": b"/* XPM */ static char *x[] = {};",
        **{
            kind: write_picture(small, kind)
            for kind in ("BMP", "TIFF", "PPM", "TGA", "ICO", "PCX", "EPS", "PDF")
        },
    }


def _png_files() -> dict[str, bytes]:
    good = write_picture(draw_picture("RGB", 30, 40), "PNG")
    idat = good.index(b"IDAT")
    animation = chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0))
    frame = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 900, 900, 900, 900, 1, 1, 0, 0))
    megabytes = zlib.compress(bytes(2**20 - 100))
    return {
        "PNG signature": PNG,
        "PNG signature and noise": PNG + bytes(range(256)) * 4,
        "PNG header cut": good[:20],
        "PNG pixels cut": good[: idat + 200],
        "PNG last byte of pixels cut": good[: good.index(b"IEND") - 9],
        "PNG without end": good[:-12],
        "PNG wrong checksum of the header": good[:29] + b"abcd" + good[33:],
        "PNG no width": png(0, 5, rows(5, 5)),
        "PNG no height": png(5, 0, rows(5, 5)),
        "PNG no pixels": png(5, 5),
        "PNG empty pixels": png(5, 5, chunk(b"IDAT", b"")),
        "PNG pixels of another picture": png(500, 500, rows(5, 5)),
        "PNG more pixels than it has": png(5, 5, rows(5, 50_000)),
        "PNG 50,000 x 50,000": png(50_000, 50_000, rows(5, 5)),
        "PNG 2**31 - 1 a side": png(2**31 - 1, 2**31 - 1, rows(5, 5)),
        "PNG 2**32 - 1 a side": png(2**32 - 1, 2**32 - 1, rows(5, 5)),
        "PNG a bomb": png(8000, 8000, rows(1000, 8000), depth=1),
        "PNG 1 x 1,000,000": png(1, 1_000_000, rows(1, 1_000_000)),
        "PNG depth 3": png(5, 5, rows(5, 5), depth=3),
        "PNG colour 5": png(5, 5, rows(5, 5), colour=5),
        "PNG palette without one": png(5, 5, rows(5, 5), colour=3),
        "PNG palette of 3,000 colours": png(5, 5, chunk(b"PLTE", bytes(9000)), rows(5, 5), colour=3),
        "PNG interlaced 9": png(5, 5, rows(5, 5), interlace=9),
        "PNG text that unpacks to 30 MB": png(
            5, 5, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(30_000_000))), rows(5, 5)
        ),
        "PNG 66 texts of a megabyte": png(5, 5, *[chunk(b"zTXt", b"a\0\0" + megabytes)] * 66, rows(5, 5)),
        "PNG profile that unpacks to 30 MB": png(
            5, 5, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(30_000_000))), rows(5, 5)
        ),
        "PNG text that is a transparency": png(5, 5, chunk(b"tEXt", b"transparency\0grey"), rows(5, 5)),
        "PNG text that is EXIF": png(5, 5, chunk(b"tEXt", b"exif\0MM"), rows(5, 5)),
        "PNG EXIF that overlaps": png(5, 5, chunk(b"eXIf", overlapping_exif(60_000)[6:]), rows(5, 5)),
        "PNG chunk of 4 GB": png(5, 5, chunk(b"prIv", b"", length=2**32 - 1), rows(5, 5)),
        "PNG chunk named with zeros": png(5, 5, chunk(b"\0\0\0\0", b""), rows(5, 5)),
        "PNG animation of 2**31 frames": png(5, 5, animation, frame, rows(5, 5)),
        "PNG and a zip": good + zlib.compress(good),
    }


def _jpeg_files() -> dict[str, bytes]:
    good = write_picture(draw_picture("RGB", 30, 40), "JPEG")
    progressive = write_picture(draw_picture("RGB", 30, 40), "JPEG", progressive=True)
    frame, huffman, scan = (good.index(marker) for marker in (b"\xff\xc0", b"\xff\xc4", b"\xff\xda"))
    exif = segment(0xE1, overlapping_exif(65_000))
    return {
        "JPEG start": b"\xff\xd8\xff",
        "JPEG start again and again": b"\xff\xd8" * 5000,
        "JPEG half": good[: len(good) // 2],
        "JPEG without end": good[:-2],
        "JPEG without tables": good[:huffman] + good[scan:],
        "JPEG without a frame": good[:frame] + good[huffman:],
        "JPEG two frames": good[:huffman] + good[frame:],
        "JPEG no width": jpeg_size(good, 0, 30),
        "JPEG no height": jpeg_size(good, 40, 0),
        "JPEG larger than its data": jpeg_size(good, 1500, 1000),
        "JPEG 65,500 a side": jpeg_size(good, 65_500, 65_500),
        "JPEG progressive 65,500 a side": jpeg_size(progressive, 65_500, 65_500),
        "JPEG progressive larger than its data": jpeg_size(progressive, 1500, 1000),
        "JPEG many scans": scans(20),
        "JPEG 12 bits": good[: frame + 4] + b"\x0c" + good[frame + 5 :],
        "JPEG lossless": good[: frame + 1] + b"\xc3" + good[frame + 2 :],
        "JPEG arithmetic": good[: frame + 1] + b"\xc9" + good[frame + 2 :],
        "JPEG five layers": good[: frame + 9] + b"\x05" + good[frame + 10 :],
        "JPEG EXIF that overlaps": good[:2] + exif + good[2:],
        "JPEG EXIF in 20 segments": good[:2] + exif * 20 + good[2:],
        "JPEG index of pictures": good[:2]
        + segment(0xE2, b"MPF\0" + overlapping_exif(60_000)[6:])
        + good[2:],
        "JPEG segment of no length": good[:2] + b"\xff\xe5\0\0" + good[2:],
        "JPEG and a page": good + b"<script>alert(1)</script>",
        "JPEG padded": good[:2] + b"\xff" * 20_000 + good[2:],
    }


def _gif_files() -> dict[str, bytes]:
    good = write_picture(draw_picture("P", 30, 40), "GIF")
    image = good.index(b",", 13 + (6 << (good[10] & 7)))  # behind the palette
    screen = good[:6]
    return {
        "GIF signature": b"GIF89a",
        "GIF no frame": good[:image] + b";",
        "GIF half": good[: len(good) // 2],
        "GIF no size": screen + bytes(4) + good[10:],
        "GIF 65,535 a side": screen + b"\xff" * 4 + good[10:],
        "GIF frame larger than the screen": good[: image + 5] + b"\xff" * 4 + good[image + 9 :],
        "GIF frame of no size": good[: image + 5] + bytes(4) + good[image + 9 :],
        "GIF codes of 200 bits": good[: image + 10] + b"\xc8" + good[image + 11 :],
        "GIF 100,000 comments": good[:image] + b"!\xfe\x01a\0" * 100_000 + good[image:],
        "GIF and a script": b"GIF89a/*" + good[8:] + b"*/=1;alert(1)",
    }


def _webp_files() -> dict[str, bytes]:
    lossy = write_picture(draw_picture("RGB", 30, 40), "WEBP")
    lossless = write_picture(draw_picture("RGB", 30, 40), "WEBP", lossless=True)
    canvas = struct.pack("<I", 0)
    large = lossless[:21] + struct.pack("<I", 16_383 | 16_383 << 14) + lossless[25:]
    return {
        "WebP signature": b"RIFF\0\0\0\0WEBP",
        "WebP no chunk": webp(),
        "WebP unknown chunk": webp((b"VP9 ", bytes(100))),
        "WebP empty": webp((b"VP8 ", b"")),
        "WebP half": lossy[: len(lossy) // 2],
        "WebP lossless half": lossless[: len(lossless) // 2],
        "WebP lossless 16,384 a side": large,
        "WebP canvas of 2**24 a side": webp((b"VP8X", canvas + b"\xff" * 6), (b"VP8 ", lossy[20:])),
        "WebP canvas of 16,384 a side": webp((b"VP8X", canvas + b"\xff\x3f\0" * 2), (b"VP8 ", lossy[20:])),
        "WebP animation without frames": webp((b"VP8X", b"\2\0\0\0" + b"\x09\0\0" * 2), (b"ANIM", bytes(6))),
        "WebP of 4 GB": b"RIFF\xff\xff\xff\xff" + lossy[8:],
        "WebP EXIF that overlaps": webp(
            (b"VP8X", b"\x08\0\0\0\x27\0\0\x1d\0\0"),
            (b"VP8 ", lossy[20:]),
            (b"EXIF", overlapping_exif(60_000)[6:]),
        ),
    }


def _unusual() -> dict[str, bytes]:
    dot = Image.new("RGB", (1, 1), (1, 2, 3))
    return {
        **{f"{kind} of a pixel": write_picture(dot, kind) for kind in ("PNG", "JPEG", "GIF", "WEBP")},
        "PNG 50,000 x 1": write_picture(draw_picture("L", 1, 50_000), "PNG"),
        "PNG 1 x 50,000": write_picture(draw_picture("L", 50_000, 1), "PNG"),
        "PNG 16 bits a colour": png(4, 4, rows(24, 4), depth=16, colour=2),
        "PNG 16 bits with opacity": png(4, 4, rows(32, 4), depth=16, colour=6),
        "JPEG CMYK": write_picture(draw_picture("CMYK", 30, 40), "JPEG"),
        "GIF animated": files_of_all_kinds()["GIF animated"],
        "APNG": files_of_all_kinds()["APNG"],
    }


def _flip(random: np.random.Generator, data: bytes, _: bytes) -> bytes:
    changed = np.frombuffer(data, np.uint8).copy()
    places = random.integers(0, len(data), int(random.integers(1, 9)))
    changed[places] ^= 1 << random.integers(0, 8, len(places)).astype(np.uint8)
    return changed.tobytes()


def _overwrite(random: np.random.Generator, data: bytes, _: bytes) -> bytes:
    start = int(random.integers(0, len(data)))
    length = int(random.integers(1, 32))
    filler = bytes([int(random.choice([0, 1, 127, 128, 255]))]) * length
    return data[:start] + filler + data[start + length :]


def _cut(random: np.random.Generator, data: bytes, _: bytes) -> bytes:
    return data[: int(random.integers(0, len(data)))]


def _repeat(random: np.random.Generator, data: bytes, _: bytes) -> bytes:
    start, end = sorted(int(place) for place in random.integers(0, len(data), 2))
    return data[:end] + data[start:]


def _join(random: np.random.Generator, data: bytes, other: bytes) -> bytes:
    return data[: int(random.integers(0, len(data)))] + other[int(random.integers(0, len(other))) :]


_CHANGES: Sequence[Callable[[np.random.Generator, bytes, bytes], bytes]] = (
    _flip,
    _overwrite,
    _cut,
    _repeat,
    _join,
)


def mutated_pictures(seed: int, count: int) -> Iterator[bytes]:
    """Yield files of all kinds with one to three changes each. A seed always gives the same files."""
    random = np.random.default_rng(seed)
    files = list(files_of_all_kinds().values())
    for _ in range(count):
        data, other = (files[int(index)] for index in random.integers(0, len(files), 2))
        for _ in range(int(random.integers(1, 4))):
            change = _CHANGES[int(random.integers(0, len(_CHANGES)))]
            data = change(random, data, other) if data else data
        yield data
