"""The formats of pictures, which the first bytes of a file tell, whatever its name or media type."""

HEAD_BYTES = 12
FORMATS = "PNG, JPEG, WebP or GIF"

# The name of each format, its first bytes, and its bytes from the ninth on.
_SIGNATURES = (
    ("PNG", b"\x89PNG\r\n\x1a\n", b""),
    ("JPEG", b"\xff\xd8\xff", b""),
    ("WebP", b"RIFF", b"WEBP"),
    ("GIF", b"GIF8", b""),
)


def find_format(data: bytes) -> str | None:
    """Return the name of a file's format by its first `HEAD_BYTES`, `None` if it is no picture."""
    return next(
        (name for name, first, later in _SIGNATURES if data.startswith(first) and data.startswith(later, 8)),
        None,
    )
