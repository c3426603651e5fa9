"""What every client is given: read by the drivers in their environments, and by the tests in ours."""

import base64
import struct
import zlib

EMBEDDER = "all-MiniLM-L6-v2"
RERANKER = "tiny-reranker"
CLASSIFIER = "tiny-classifier"
UNKNOWN = "no-such-model"

TEXTS = [
    "A short text.",
    "",
    "Ein längerer Satz über das Wetter.",
    "水は百度で沸騰する",
    "🙂" * 40,
    "What the cat is and where it was.",
]
TOO_LONG = "the one " * 400
# With spaces of all kinds, signs that the vocabulary lacks, and characters of several tokens.
HARD_TEXT = "  Ein  längerer\tSatz,\n日本語 and 🙂 ①½ CAPITALS  "

QUERY = "Where do cats sleep?"
DOCUMENTS = ["Dogs bark.", "Cats sleep anywhere.", "Where it was, and what it is."]

PICTURE_MODEL = "clip"
PICTURE_TEXT = "the cat and a dog"
LABELS = ["cat", "dog", "the"]


def _draw(seed: int, height: int = 20, width: int = 24) -> str:
    """A PNG file of slopes of colour, as base64: the same with any compressor."""
    pixels = (
        bytes((255 * row // height, 255 * column // width, 80 * ((row + column) // 5 + seed) % 256))
        for row in range(height)
        for column in range(width)
    )
    content = b"".join(pixels)
    lines = b"".join(b"\0" + content[row * 3 * width :][: 3 * width] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 0)), (b"IEND", b""))
    file = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return base64.b64encode(file).decode()


PICTURES = [_draw(seed) for seed in range(3)]
