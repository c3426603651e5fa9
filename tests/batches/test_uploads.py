"""A form is read the same however its bytes arrive, and its file never waits in memory."""

import io
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecmill.errors import InvalidRequest
from vecmill_server.batches.uploads import MAX_NAME_CHARACTERS, WRITE_BYTES, UploadForm, receive_form

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CONTENT_TYPE = b"multipart/form-data; boundary=edge"
CONTENT = b"line 1\r\n--edg\r\n--edge-not\n\x00\xff line 2"


def form_bytes(content: bytes = CONTENT, name: bytes = b"a.jsonl") -> bytes:
    return (
        b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--edge\r\ncontent-disposition: form-data; name="file"; filename="' + name + b'"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--edge--\r\n"
    )


async def parts(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def unlimited(size: int) -> None:
    """Reserve as much as is asked for."""


@pytest.mark.promise("malformed-input")
@given(st.integers(1, 200))
async def test_it_does_not_matter_where_the_body_is_cut(size: int) -> None:
    content = io.BytesIO()
    form = await receive_form(CONTENT_TYPE, parts(form_bytes(), size), content, unlimited)
    assert content.getvalue() == CONTENT
    assert (form.fields, form.filename, form.file_bytes) == ({"purpose": "batch"}, "a.jsonl", len(CONTENT))


@given(st.integers(1, len(form_bytes()) - 6), st.integers(1, 50))
async def test_a_form_that_ends_early_is_refused(length: int, size: int) -> None:
    with pytest.raises(InvalidRequest):
        await receive_form(CONTENT_TYPE, parts(form_bytes()[:length], size), io.BytesIO(), unlimited)


async def test_no_more_than_is_written_at_a_time_is_held() -> None:
    held: list[int] = []

    class Watched(io.BytesIO):
        def write(self, data: "ReadableBuffer") -> int:
            held.append(memoryview(data).nbytes)
            return super().write(data)

    size = 5 * WRITE_BYTES + 3
    form = await receive_form(CONTENT_TYPE, parts(form_bytes(b"x" * size), 65_536), Watched(), unlimited)
    assert isinstance(form, UploadForm)
    assert form.file_bytes == sum(held) == size
    assert max(held) <= WRITE_BYTES + 65_536


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (b"a" * MAX_NAME_CHARACTERS, "a" * MAX_NAME_CHARACTERS),
        (b"b" + b"a" * MAX_NAME_CHARACTERS + b".jsonl", "a" * (MAX_NAME_CHARACTERS - 6) + ".jsonl"),
        (b"a/b\x1f\x7fc", "a_b__c"),
        (b"", "file"),
    ],
)
async def test_a_name_is_safe_and_a_long_one_keeps_its_end(name: bytes, kept: str) -> None:
    form = await receive_form(CONTENT_TYPE, parts(form_bytes(name=name), 99), io.BytesIO(), unlimited)
    assert form.filename == kept
