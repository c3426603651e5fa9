"""The reading of file uploads: multipart forms whose file is written to disk as it arrives.

python-multipart parses the form. The other fields are kept in memory; large fields are refused.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from vecmill.errors import InvalidRequest
from vecmill_server.base.json_schema import Schema, an_object, described
from vecmill_server.dialects.fields import invalid

MAX_FIELD_BYTES = 4096
MAX_FIELDS = 16
# The most bytes of a form besides the file: fields, headers of parts, boundaries.
FORM_BYTES = 256 * 1024
# The bytes to write in one call. Each call switches to another thread, so small writes would be slow.
WRITE_BYTES = 1024 * 1024

SHORTEST_AGE_S = 3600
LONGEST_AGE_S = 30 * 24 * 3600
AGE: Schema = {"type": "integer", "minimum": SHORTEST_AGE_S, "maximum": LONGEST_AGE_S}
MAX_NAME_CHARACTERS = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f/\\]")

BYTES: Schema = {"type": "string", "format": "binary"}
FORM = an_object(
    ("purpose", "file"),
    {
        "purpose": "batch",
        "file": described(BYTES, "One JSON object a line, with custom_id, method, url and body."),
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": AGE,
    },
)


@dataclass(slots=True)
class UploadForm:
    """The part of a form that was read. `unwritten` holds bytes of the file that are not on disk yet."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    file_bytes: int = 0
    unwritten: bytearray = field(default_factory=bytearray)
    is_complete: bool = False


class _FormReader:
    """A parser that fills an `UploadForm` as bytes arrive. Its callbacks raise `InvalidRequest`."""

    def __init__(self, boundary: bytes) -> None:
        self.form = UploadForm()
        self._parts = 0
        self._name = ""
        self._is_file = False
        self._header_name = b""
        self._header_value = b""
        self._disposition = b""
        self._value = bytearray()
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_part_data": self._take_data,
                "on_part_end": self._end_part,
                "on_header_field": self._take_header_name,
                "on_header_value": self._take_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_end": self._end,
            },
        )

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_FIELDS + 1:  # of which one is the file
            raise InvalidRequest(f"The form has more than {MAX_FIELDS} fields.")
        self._disposition = b""
        self._value = bytearray()

    def _take_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _take_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name = self._header_value = b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        self._is_file = self._name == "file"
        if not self._is_file:
            return
        if self.form.filename is not None:
            raise InvalidRequest("Send only one `file` in a form.", field="file")
        if b"filename" not in options:
            raise invalid("file", "must be a file, with a file name.")
        self.form.filename = _clean_name(options[b"filename"].decode("utf-8", "replace"))

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.form.unwritten += memoryview(data)[start:end]
            self.form.file_bytes += end - start
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            raise InvalidRequest(f"A field of the form is longer than {MAX_FIELD_BYTES} bytes.")

    def _end_part(self) -> None:
        if self._is_file:
            return
        self.form.fields[self._name] = self._value.decode("utf-8", "replace")

    def _end(self) -> None:
        self.form.is_complete = True


# Reserves bytes before they are written. Raises `StorageFull`.
Reserve = Callable[[int], Awaitable[None]]


async def receive_form(
    content_type: bytes, body: AsyncIterator[bytes], content: BinaryIO, reserve: Reserve
) -> UploadForm:
    """Read a form, and write its file to `content`.

    Raises `InvalidRequest` if the body is not a form or has no file, and the errors of `body` and `reserve`.
    """
    boundary = _read_boundary(content_type)
    try:
        reader = _FormReader(boundary)
        async for chunk in body:
            reader.parser.write(chunk)
            if len(reader.form.unwritten) >= WRITE_BYTES:
                await _write(reader.form, content, reserve)
    except FormParserError as error:
        raise InvalidRequest(f"The body is not valid multipart/form-data: {error}") from None
    if not reader.form.is_complete:
        raise InvalidRequest("The form is not complete: its last boundary is missing.")
    if reader.form.filename is None:
        raise invalid("file", "is required: a file of requests, with one JSON object a line.")
    await _write(reader.form, content, reserve)
    return reader.form


async def _write(form: UploadForm, content: BinaryIO, reserve: Reserve) -> None:
    data, form.unwritten = form.unwritten, bytearray()
    await reserve(len(data))
    await asyncio.to_thread(content.write, data)


def _read_boundary(content_type: bytes) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise InvalidRequest(
            "Send the file as multipart/form-data, with the fields `purpose` and `file`.", field="file"
        )
    return options[b"boundary"]


def check_purpose(form: UploadForm) -> None:
    """Raise `InvalidRequest` unless the file is for a batch."""
    if form.fields.get("purpose") != "batch":
        raise invalid("purpose", 'is required and must be "batch".')


def read_age_s(form: UploadForm) -> int | None:
    """Return the seconds to keep the file, from `expires_after[anchor]` and `expires_after[seconds]`."""
    anchor, seconds = (form.fields.get(f"expires_after[{name}]") for name in ("anchor", "seconds"))
    if anchor is None and seconds is None:
        return None
    is_number = seconds is not None and seconds.isascii() and seconds.isdigit() and len(seconds) < 10
    return check_age_s(anchor, int(seconds) if is_number and seconds is not None else None, "expires_after")


def check_age_s(anchor: object, seconds: object, name: str) -> int:
    """Return `seconds`, the time to keep files, after checking it. Raises `InvalidRequest`."""
    if anchor != "created_at":
        raise InvalidRequest(f'`{name}.anchor` must be "created_at".', field=f"{name}.anchor")
    if type(seconds) is not int or not SHORTEST_AGE_S <= seconds <= LONGEST_AGE_S:
        raise InvalidRequest(
            f"`{name}.seconds` must be a whole number from {SHORTEST_AGE_S} to {LONGEST_AGE_S}.",
            field=f"{name}.seconds",
        )
    return seconds


def _clean_name(name: str) -> str:
    """Return the name without characters that are unsafe in paths and headers."""
    return _CONTROL.sub("_", name)[-MAX_NAME_CHARACTERS:] or "file"
