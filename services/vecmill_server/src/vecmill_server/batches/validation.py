"""The validation of an input file: every line is checked before any line is run.

An input file is accepted as a whole or refused. The checks find faults that could lose a response or assign
it to the wrong request. An invalid request body fails only its own line, when the line is run.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vecmill_server.base.errors import InvalidJson
from vecmill_server.base.json_io import LARGE_BODY_BYTES, decode_object, kind_of
from vecmill_server.base.json_measure import DocumentLimits, measure_document
from vecmill_server.batches.jsonl import ENDPOINTS, InputLine
from vecmill_server.batches.objects import LineError

# A file with this many errors probably repeats one mistake, so the validation stops.
MAX_ERRORS = 100
MAX_CUSTOM_ID_CHARACTERS = 512
# The lines of a file, blank ones included, for each request that it may have.
LINES_PER_REQUEST = 10


@dataclass(slots=True)
class Validation:
    """The state of a validation: the number of requests, the errors, and the position in the file."""

    endpoint: str
    max_lines: int
    max_line_bytes: int
    document_limits: DocumentLimits
    total: int = 0
    offset: int = 0
    lines: int = 0
    errors: list[LineError] = field(default_factory=list)
    is_done: bool = False
    _seen: set[bytes] = field(default_factory=set)

    def read(self, lines: list[InputLine]) -> None:
        """Check the next lines. An empty list means the end of the file."""
        for line in lines:
            self.offset += line.size
            self.lines = line.number
            if self.lines > self.max_file_lines:
                self._stop_at_lines()
            elif not line.is_blank:
                self.total += 1
                self.errors.extend(self._check(line))
                self.is_done = line.is_cut or self.total > self.max_lines or len(self.errors) >= MAX_ERRORS
            if self.is_done:
                break
        if not lines:
            self._end()

    @property
    def max_file_lines(self) -> int:
        """The maximum number of lines, blank ones included."""
        return LINES_PER_REQUEST * self.max_lines

    def _stop_at_lines(self) -> None:
        self.is_done = True
        self.errors.append(
            LineError(
                "too_many_lines",
                f"The file has more than {self.max_file_lines} lines, blank lines included. Remove the blank "
                "lines, create several batches, or start the server with a larger --max-batch-lines.",
                line=self.max_file_lines + 1,
            )
        )

    def _end(self) -> None:
        self.is_done = True
        if not self.total:
            self.errors.append(
                LineError("empty_file", "The file has no requests. Write one JSON object a line.")
            )

    def _check(self, line: InputLine) -> Iterator[LineError]:
        if self.total > self.max_lines:
            yield LineError(
                "too_many_tasks",
                f"The file has more than {self.max_lines} requests. Create several batches, or start the "
                "server with a larger --max-batch-lines.",
            )
            return
        if line.is_cut:
            yield LineError(
                "line_too_long",
                f"The line is longer than {self.max_line_bytes} bytes. Put fewer texts into a request.",
                line=line.number,
            )
            return
        if not self._is_decodable(line.text):
            yield LineError(
                "line_too_long",
                "The line has too many JSON values or characters. Put fewer texts into a request.",
                line=line.number,
            )
            return
        try:
            entry = decode_object(line.text)
        except InvalidJson:
            yield LineError(
                "invalid_json_line", "This line is not parseable as a JSON object.", line=line.number
            )
            return
        yield from self._check_id(entry, line.number)
        yield from self._check_rest(entry, line.number)

    def _is_decodable(self, text: bytes) -> bool:
        """Return False if the line is over the limits that a request body has over HTTP."""
        if len(text) <= LARGE_BODY_BYTES:
            return True
        try:
            measure_document(text, self.document_limits)
        except InvalidJson:
            return False
        return True

    def _check_id(self, entry: Mapping[str, Any], number: int) -> Iterator[LineError]:
        custom_id = entry.get("custom_id")
        if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARACTERS:
            yield _missing("custom_id", f"a string of 1 to {MAX_CUSTOM_ID_CHARACTERS} characters", number)
            return
        # A digest, because long ids would take much memory.
        digest = hashlib.blake2b(custom_id.encode("utf-8"), digest_size=16).digest()
        if digest in self._seen:
            yield LineError(
                "duplicate_custom_id",
                "Another line of the file has the same `custom_id`, which must be unique.",
                "custom_id",
                number,
            )
        self._seen.add(digest)

    def _check_rest(self, entry: Mapping[str, Any], number: int) -> Iterator[LineError]:
        if entry.get("method") != "POST":
            yield LineError("invalid_method", "`method` must be POST.", "method", number)
        url = entry.get("url")
        if not isinstance(url, str) or ENDPOINTS.get(url) is not ENDPOINTS[self.endpoint]:
            yield LineError(
                "url_mismatch",
                f"`url` must be the endpoint of the batch, {self.endpoint}.",
                "url",
                number,
            )
        body = entry.get("body")
        if not isinstance(body, dict):
            yield _missing("body", f"an object, not {kind_of(body)}", number)


def _missing(name: str, wanted: str, number: int) -> LineError:
    return LineError("missing_required_parameter", f"`{name}` is required: {wanted}.", name, number)
