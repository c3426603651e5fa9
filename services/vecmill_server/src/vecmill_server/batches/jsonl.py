"""The JSON Lines of batches: the reading of input files, and the lines of output and error files.

An input line is `{"custom_id", "method", "url", "body"}`, an output line `{"id", "custom_id", "response",
"error"}`. Source: OpenAI's guide to its Batch API.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from vecmill.errors import InvalidRequest, VecmillError
from vecmill.requests import Priority
from vecmill.results import Result
from vecmill_server.base.error_responses import error_response
from vecmill_server.base.headers import HeaderList
from vecmill_server.base.json_io import LargeJson, decode_object, encode_json
from vecmill_server.batches.objects import BatchStatus
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import DialectOptions

# The bodies of a batch's requests, by the `endpoint` of the batch and the `url` of its lines.
ENDPOINTS: Mapping[str, type[InferenceBody]] = {
    "/v1/embeddings": EmbeddingsRequest,
    "/embeddings": EmbeddingsRequest,
}

# The bytes and lines to read in one call, a few milliseconds of work. A longer line is read whole.
SLICE_BYTES = 64 * 1024
SLICE_LINES = 512
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The same characters as `bytes.isspace`, matched at any position without a copy.
_WHITESPACE = re.compile(rb"\s*")

# OpenAI's codes and messages for a line that was not run.
DROPPED: Mapping[BatchStatus, tuple[str, str]] = {
    BatchStatus.CANCELLED: (
        "batch_cancelled",
        "This request was not executed: the batch was cancelled before.",
    ),
    BatchStatus.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
}


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line of input: its number from 1, its bytes without the end of the line, and its size with it.

    Consecutive blank lines are merged into one, with the number of the last. `is_cut` marks a line over the
    size limit, of which only the beginning was read.
    """

    number: int
    text: bytes
    size: int
    is_cut: bool

    @property
    def is_blank(self) -> bool:
        """True if the line has no request."""
        return not self.is_cut and (not self.text or self.text.isspace())


def read_lines(
    path: Path, offset: int, lines_before: int, max_line_bytes: int | None = None
) -> list[InputLine]:
    """Read the next lines of a file, from the byte `offset`. Reading stops after a line that is cut.

    Returns an empty list at the end of the file.
    """
    lines: list[InputLine] = []
    limit = -1 if max_line_bytes is None else max_line_bytes + 1
    left = SLICE_BYTES
    with path.open("rb") as content:
        content.seek(offset)
        for line in _lines_of(content, lines_before, limit):
            left -= line.size
            if lines and lines[-1].is_blank and line.is_blank:
                line = InputLine(line.number, b"", lines.pop().size + line.size, is_cut=False)
            lines.append(line)
            if left <= 0 or len(lines) == SLICE_LINES or line.is_cut:
                break
    return lines


def _lines_of(content: BinaryIO, number: int, limit: int) -> Iterator[InputLine]:
    """Read lines, of which the first follows line `number`. Of no line more than `limit` bytes, unless -1."""
    while block := _read_block(content, limit):
        start = 0
        while start < len(block):
            line = _line_at(block, start, number, limit)
            number, start = line.number, start + line.size
            yield line


def _read_block(content: BinaryIO, limit: int) -> bytes:
    """Read several whole lines, or one longer line. Returns no bytes at the end of the file."""
    begin = content.tell()
    block = content.read(SLICE_BYTES if limit < 0 else min(SLICE_BYTES, limit))
    end = block.rfind(b"\n") + 1
    content.seek(begin + end)
    return block[:end] or content.readline(limit)


def _line_at(block: bytes, start: int, lines_before: int, limit: int) -> InputLine:
    """Return the line at `start`, or all blank lines from there, which are not split one by one."""
    whitespace = _WHITESPACE.match(block, start)
    assert whitespace is not None  # it may be empty
    blank_end = block.rfind(b"\n", start, whitespace.end()) + 1
    if blank_end:
        number = lines_before + block.count(b"\n", start, blank_end)
        return InputLine(number, b"", blank_end - start, is_cut=False)
    end = block.find(b"\n", start) + 1 or len(block)
    text = block[start:end].rstrip(b"\r\n")
    if lines_before == 0:
        text = text.removeprefix(_BYTE_ORDER_MARK)
    is_cut = end == limit and not block.endswith(b"\n")
    return InputLine(lines_before + 1, text, end - start, is_cut)


@dataclass(frozen=True, slots=True)
class LineRequest:
    """A parsed line: its request, or the error in it. A blank line has neither.

    `texts` is the number of inputs, or 1 if there are none. `unknown` names the unknown fields of the body.
    """

    line: InputLine
    custom_id: str
    asked: Asked | None = None
    error: VecmillError | None = None
    texts: int = 1
    unknown: Sequence[str] = ()

    @property
    def is_blank(self) -> bool:
        """True if the line has no request."""
        return self.line.is_blank


def read_line_request(line: InputLine, endpoint: str, options: DialectOptions) -> LineRequest:
    """Read a line of a file that has been validated."""
    if line.is_blank:
        return LineRequest(line, "")
    entry = decode_object(line.text)
    custom_id: str = entry["custom_id"]
    kind, body = ENDPOINTS[endpoint], entry["body"]
    unknown = kind.unknown_fields(body)
    try:
        asked = kind.parse(body, options)
        if asked.write_raw is not None:
            raise InvalidRequest(
                "`encoding_format` must be float or base64 in a batch, whose output lines are JSON.",
                field="encoding_format",
            )
    except VecmillError as error:
        # Without its frames: they would keep the parsed line until a long collection of garbage.
        return LineRequest(line, custom_id, error=error.with_traceback(None), unknown=unknown)
    background = replace(asked.request, priority=Priority.BACKGROUND)
    asked = replace(asked, request=background)
    return LineRequest(line, custom_id, asked, texts=len(background.sizes), unknown=unknown)


@dataclass(frozen=True, slots=True)
class LineResult:
    """The result of a line: the bytes to write, and their file. A line that `is_dropped` was not run.

    `model`, `texts` and `tokens` tell what was computed for a line that `is_completed`.
    """

    line: InputLine
    written: bytes = b""
    is_completed: bool = False
    is_dropped: bool = False
    model: str = ""
    texts: int = 0
    tokens: int = 0

    @property
    def is_failed(self) -> bool:
        """True if the line is written to the error file."""
        return bool(self.written) and not self.is_completed


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """The result of a line, with the headers that the answer of a route would have of its own."""

    result: Result
    headers: HeaderList


def write_answer(
    batch_id: str, request: LineRequest, answer: LineAnswer, model: str, created: int
) -> LineResult:
    """Return the output line for an answer. Its headers are beside the status, if there are any."""
    result = answer.result
    assert request.asked is not None
    request_id = _request_id(batch_id, request.line)
    body = request.asked.write_document(result, Envelope(request_id, model, created))
    named = {name.decode(): value.decode() for name, value in answer.headers}
    headers = {"headers": named} if named else {}
    response = {"status_code": 200, "request_id": request_id, **headers, "body": body}
    written = _write(batch_id, request, response)
    return LineResult(
        request.line,
        written,
        is_completed=True,
        model=model,
        texts=request.texts,
        tokens=result.token_count,
    )


def write_failure(batch_id: str, request: LineRequest, error: BaseException) -> LineResult:
    """Return the error line for `error`, with its HTTP response."""
    response = error_response(error)
    failure = {
        "status_code": response.status,
        "request_id": _request_id(batch_id, request.line),
        "body": decode_object(response.body),
    }
    return LineResult(request.line, _write(batch_id, request, failure))


def write_dropped(batch_id: str, line: InputLine, ending: BatchStatus) -> LineResult:
    """Return the error line for a request that was not run, because the batch ends as `ending`."""
    if line.is_blank:
        return LineResult(line)
    code, message = DROPPED[ending]
    request = LineRequest(line, decode_object(line.text)["custom_id"])
    written = _write(batch_id, request, None, {"code": code, "message": message})
    return LineResult(line, written, is_dropped=True)


def _request_id(batch_id: str, line: InputLine) -> str:
    return f"{batch_id}-{line.number}"


def _write(
    batch_id: str,
    request: LineRequest,
    response: Mapping[str, Any] | None,
    error: Mapping[str, str] | None = None,
) -> bytes:
    entry = {
        "id": f"batch_req_{batch_id.removeprefix('batch_')}_{request.line.number}",
        "custom_id": request.custom_id,
        "response": response,
        "error": error,
    }
    return encode_json(entry) + b"\n"


T = TypeVar("T")


class SliceTurns:
    """The work on slices: one at a time, in a thread. The owners take turns. Use from one event loop.

    A file can have any number of lines that take long to check or to parse, and the thread that does it holds
    the interpreter lock for most of the time. An owner with many or large files waits longer for its own
    slices, but delays another owner by one slice only.
    """

    def __init__(self) -> None:
        self._documents = LargeJson()
        # One slice of each owner waits for its turn, so that turns in order of arrival are turns of owners.
        self._owners: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, owner: str, function: Callable[[], T]) -> T:
        """Return `function()`, called in a thread when it is the turn of `owner`.

        Cancelling the caller does not stop a call that has begun.
        """
        async with self._owners[owner]:
            return await self._documents.run(True, function)
