"""Checks every line of an input file before any of them is run.

A file is taken whole or not at all. What is checked is what could lose an answer or give one to the wrong
request; a body that cannot be answered costs its own line alone, when its turn comes.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vecmill_server.batches.lines import ENDPOINTS, Line
from vecmill_server.batches.records import LineProblem
from vecmill_server.documents import decode_object, kind_of
from vecmill_server.errors import InvalidJson

# Who has made so many mistakes has made one, again and again.
MAX_PROBLEMS = 100
MAX_CUSTOM_ID_CHARACTERS = 512


@dataclass(slots=True)
class Validation:
    """What is known of a file so far: its requests, its problems, and how far it has been read."""

    endpoint: str
    max_lines: int
    max_line_bytes: int
    total: int = 0
    offset: int = 0
    lines: int = 0
    problems: list[LineProblem] = field(default_factory=list)
    is_done: bool = False
    _seen: set[bytes] = field(default_factory=set)

    def read(self, lines: list[Line]) -> None:
        """Check the next lines; none is the end of the file."""
        for line in lines:
            self.offset += line.size
            self.lines = line.number
            if not line.is_blank:
                self.total += 1
                self.problems.extend(self._check(line))
            if line.is_cut or self.total > self.max_lines or len(self.problems) >= MAX_PROBLEMS:
                self.is_done = True
                break
        if not lines:
            self._end()

    def _end(self) -> None:
        self.is_done = True
        if not self.total:
            self.problems.append(
                LineProblem("empty_file", "The file has no requests: one JSON object a line.")
            )

    def _check(self, line: Line) -> Iterator[LineProblem]:
        if self.total > self.max_lines:
            yield LineProblem(
                "too_many_tasks",
                f"The file has more than {self.max_lines} requests. Make several batches, or start the "
                "server with a "
                "larger --max-batch-lines.",
            )
            return
        if line.is_cut:
            yield LineProblem(
                "line_too_long",
                f"The line is longer than {self.max_line_bytes} bytes. Put fewer texts into a request.",
                line=line.number,
            )
            return
        try:
            document = decode_object(line.text)
        except InvalidJson:
            yield LineProblem(
                "invalid_json_line", "This line is not parseable as a JSON object.", line=line.number
            )
            return
        yield from self._check_id(document, line.number)
        yield from self._check_rest(document, line.number)

    def _check_id(self, document: Mapping[str, Any], number: int) -> Iterator[LineProblem]:
        custom_id = document.get("custom_id")
        if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARACTERS:
            yield _missing("custom_id", f"a string of 1 to {MAX_CUSTOM_ID_CHARACTERS} characters", number)
            return
        # A digest, so that long ids do not cost memory.
        digest = hashlib.blake2b(custom_id.encode("utf-8"), digest_size=16).digest()
        if digest in self._seen:
            yield LineProblem(
                "duplicate_custom_id",
                "The `custom_id` of this line is that of another line of the file; it must be unique.",
                "custom_id",
                number,
            )
        self._seen.add(digest)

    def _check_rest(self, document: Mapping[str, Any], number: int) -> Iterator[LineProblem]:
        if document.get("method") != "POST":
            yield LineProblem("invalid_method", "`method` must be POST.", "method", number)
        url = document.get("url")
        if not isinstance(url, str) or ENDPOINTS.get(url) is not ENDPOINTS[self.endpoint]:
            yield LineProblem(
                "url_mismatch",
                f"`url` must be the endpoint of the batch, {self.endpoint}.",
                "url",
                number,
            )
        body = document.get("body")
        if not isinstance(body, dict):
            yield _missing("body", f"an object, not {kind_of(body)}", number)


def _missing(name: str, wanted: str, number: int) -> LineProblem:
    return LineProblem("missing_required_parameter", f"`{name}` is required: {wanted}.", name, number)
