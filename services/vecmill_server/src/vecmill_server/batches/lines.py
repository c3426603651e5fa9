"""The lines of an input file, and those of the two files that come of them.

An input line is `{"custom_id", "method", "url", "body"}`, an output line `{"id", "custom_id", "response",
"error"}`. Source: OpenAI's guide to its Batch API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.errors import VecmillError
from vecmill_server.batches.records import BatchStatus
from vecmill_server.calls import EmbedCall, Embedded
from vecmill_server.dialects import Asked, Dialect, DialectOptions, openai
from vecmill_server.documents import Envelope, decode_object, encode_json
from vecmill_server.problems import problem_response

# What a batch can be for, by the `endpoint` of the batch and the `url` of its lines.
ENDPOINTS: Mapping[str, Dialect] = MappingProxyType(
    {"/v1/embeddings": openai.EMBEDDINGS, "/embeddings": openai.EMBEDDINGS}
)

# So much is read at a time, or one line if it is longer.
SLICE_BYTES = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Why a line was not run, as OpenAI words it.
DROPPED: Mapping[BatchStatus, tuple[str, str]] = MappingProxyType(
    {
        BatchStatus.CANCELLED: (
            "batch_cancelled",
            "This request was not executed: the batch was cancelled before.",
        ),
        BatchStatus.EXPIRED: (
            "batch_expired",
            "This request could not be executed before the completion window expired.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of input: its number from 1, its bytes without the line's end, and its size with it.

    Blank lines that follow one another are one, with the number of the last. `is_cut` says that it is longer
    than lines may be, and not all here.
    """

    number: int
    text: bytes
    size: int
    is_cut: bool

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to do."""
        return not self.is_cut and not self.text.strip()


def read_lines(path: Path, offset: int, lines_before: int, max_line_bytes: int | None = None) -> list[Line]:
    """The next lines of a file, from `offset` bytes on; none at its end, none after one that is cut."""
    lines: list[Line] = []
    limit = -1 if max_line_bytes is None else max_line_bytes + 1
    left, number = SLICE_BYTES, lines_before
    with path.open("rb") as content:
        content.seek(offset)
        while left > 0 and (read := content.readline(limit)):
            number += 1
            left -= len(read)
            is_cut = len(read) == limit and not read.endswith(b"\n")
            text = read.rstrip(b"\r\n")
            if number == 1:
                text = text.removeprefix(_BYTE_ORDER_MARK)
            line = Line(number, text, len(read), is_cut)
            if lines and lines[-1].is_blank and line.is_blank:
                line = Line(number, b"", lines.pop().size + line.size, is_cut=False)
            lines.append(line)
            if is_cut:
                break
    return lines


@dataclass(frozen=True, slots=True)
class Question:
    """A line that was read: what to ask, or what is wrong with it. One that is blank asks nothing.

    `texts` is how many texts are embedded for it, or 1 if none are: nothing is free.
    """

    line: Line
    custom_id: str
    asked: Asked | None = None
    error: VecmillError | None = None
    texts: int = 1

    @property
    def is_blank(self) -> bool:
        """Whether the line asks nothing."""
        return self.line.is_blank


def read_question(line: Line, endpoint: str, options: DialectOptions) -> Question:
    """Read a line of a file that was found to be valid."""
    if line.is_blank:
        return Question(line, "")
    document = decode_object(line.text)
    custom_id: str = document["custom_id"]
    try:
        asked = ENDPOINTS[endpoint].read(document["body"], options)
    except VecmillError as error:
        return Question(line, custom_id, error=error)
    assert isinstance(asked.call, EmbedCall)
    call = replace(asked.call, is_bulk=True)
    return Question(line, custom_id, replace(asked, call=call), texts=len(call.inputs))


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a line: what to write, and to which file. One that `is_dropped` was not run."""

    line: Line
    written: bytes = b""
    is_completed: bool = False
    is_dropped: bool = False
    tokens: int = 0

    @property
    def is_failed(self) -> bool:
        """Whether what is written is an error."""
        return bool(self.written) and not self.is_completed


def write_answer(batch_id: str, question: Question, result: Embedded, model: str, created: int) -> Ended:
    """The line for an answer."""
    assert question.asked is not None
    request_id = _request_id(batch_id, question.line)
    body = question.asked.write(result, Envelope(request_id, model, created))
    written = _write(batch_id, question, {"status_code": 200, "request_id": request_id, "body": body})
    return Ended(question.line, written, is_completed=True, tokens=result.token_count)


def write_failure(batch_id: str, question: Question, error: BaseException) -> Ended:
    """The line for an error that HTTP would have answered."""
    response = problem_response(error)
    document = {
        "status_code": response.status,
        "request_id": _request_id(batch_id, question.line),
        "body": decode_object(response.body),
    }
    return Ended(question.line, _write(batch_id, question, document))


def write_dropped(batch_id: str, line: Line, ending: BatchStatus) -> Ended:
    """The line for a request that was not run, because its batch ends so."""
    if line.is_blank:
        return Ended(line)
    code, message = DROPPED[ending]
    question = Question(line, decode_object(line.text)["custom_id"])
    written = _write(batch_id, question, None, {"code": code, "message": message})
    return Ended(line, written, is_dropped=True)


def _request_id(batch_id: str, line: Line) -> str:
    return f"{batch_id}-{line.number}"


def _write(
    batch_id: str,
    question: Question,
    response: Mapping[str, Any] | None,
    error: Mapping[str, str] | None = None,
) -> bytes:
    document = {
        "id": f"batch_req_{batch_id.removeprefix('batch_')}_{question.line.number}",
        "custom_id": question.custom_id,
        "response": response,
        "error": error,
    }
    return encode_json(document) + b"\n"
