"""A file is taken whole or not at all, and every mistake in it is told with its line."""

import json
from pathlib import Path
from typing import Any

import pytest

from vecmill_server.base.json_io import decode_object
from vecmill_server.base.json_measure import DocumentLimits
from vecmill_server.batches import validation
from vecmill_server.batches.jsonl import SLICE_BYTES, read_lines
from vecmill_server.batches.objects import LineError
from vecmill_server.batches.validation import MAX_ERRORS, Validation

LIMIT_BYTES = 2_000
DOCUMENT_LIMITS = DocumentLimits(max_values=10_000, max_wide_characters=10_000)


def request(number: object, **changes: Any) -> dict[str, Any]:
    fields = {
        "custom_id": f"id-{number}",
        "method": "POST",
        "url": "/v1/embeddings",
        "body": {"input": "a"},
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not None}


def checked(path: Path, content: bytes | str, *, max_lines: int = 1_000) -> Validation:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    check = Validation("/v1/embeddings", max_lines, LIMIT_BYTES, DOCUMENT_LIMITS)
    while not check.is_done:
        check.read(read_lines(path, check.offset, check.lines, LIMIT_BYTES))
    return check


def problems(path: Path, *lines: object) -> list[tuple[str, str | None, int | None]]:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return [(found.code, found.param, found.line) for found in checked(path, text).errors]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


def test_requests_are_counted_and_blank_lines_are_not(path: Path) -> None:
    lines = [json.dumps(request(number)) for number in range(3)]
    check = checked(path, b"\xef\xbb\xbf" + "\r\n\n".join(lines).encode() + b"\n  \n")
    assert (check.total, check.errors) == (3, [])


def test_thousands_of_blank_lines_are_one_and_the_numbers_go_on(path: Path) -> None:
    path.write_bytes(b"\n" * 50_000 + b"{")
    lines = read_lines(path, 0, 0, LIMIT_BYTES)
    assert [(line.number, line.size) for line in lines] == [(50_000, 50_000), (50_001, 1)]
    (problem,) = checked(path, path.read_bytes(), max_lines=5_001).errors
    assert (problem.code, problem.line) == ("invalid_json_line", 50_001)


def test_files_longer_than_what_is_read_at_a_time_are_read_to_their_end(path: Path) -> None:
    count = 3 * SLICE_BYTES // 80
    check = checked(path, "\n".join(json.dumps(request(number)) for number in range(count)), max_lines=count)
    assert (check.total, check.errors) == (count, [])
    assert check.offset == path.stat().st_size > 2 * SLICE_BYTES


def test_the_last_line_needs_no_end_and_an_exact_limit_is_within_it(path: Path) -> None:
    line = json.dumps(request(1))
    padded = line[:-1] + " " * (LIMIT_BYTES - len(line)) + "}"
    assert checked(path, padded).errors == []
    assert checked(path, padded + "\n").errors == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", ("invalid_json_line", None, 2)),
        ("[]", ("invalid_json_line", None, 2)),
        (request(2, custom_id=None), ("missing_required_parameter", "custom_id", 2)),
        (request(2, custom_id=""), ("missing_required_parameter", "custom_id", 2)),
        (request(2, custom_id=7), ("missing_required_parameter", "custom_id", 2)),
        (request(1), ("duplicate_custom_id", "custom_id", 2)),
        (request(2, method="GET"), ("invalid_method", "method", 2)),
        (request(2, url="/v1/chat/completions"), ("url_mismatch", "url", 2)),
        (request(2, url=["/v1/embeddings"]), ("url_mismatch", "url", 2)),
        (request(2, body=None), ("missing_required_parameter", "body", 2)),
        (request(2, body="text"), ("missing_required_parameter", "body", 2)),
        (request(2, body={"input": "a" * LIMIT_BYTES}), ("line_too_long", None, 2)),
        (" " * (LIMIT_BYTES + 1), ("line_too_long", None, 2)),
    ],
)
def test_what_is_wrong_with_a_line_is_told(
    path: Path, line: object, expected: tuple[str, str | None, int]
) -> None:
    assert problems(path, request(1), line, request(3)) == [expected]


def test_all_mistakes_are_told_together(path: Path) -> None:
    found = problems(path, "{", request(1, url="/x", method="PUT"), request(2))
    assert [code for code, *_ in found] == ["invalid_json_line", "invalid_method", "url_mismatch"]


def test_but_not_thousands_of_them(path: Path) -> None:
    assert len(problems(path, *["{"] * 5_000)) == MAX_ERRORS


@pytest.mark.parametrize("content", ["", "\n\n \n"])
def test_a_file_without_requests_is_refused(path: Path, content: str) -> None:
    assert [found.code for found in checked(path, content).errors] == ["empty_file"]


def test_more_requests_than_are_taken_are_refused(path: Path) -> None:
    text = "\n".join(json.dumps(request(number)) for number in range(3))
    assert checked(path, text, max_lines=3).errors == []
    (found,) = checked(path, text, max_lines=2).errors
    assert isinstance(found, LineError)
    assert (found.code, "--max-batch-lines" in found.message) == ("too_many_tasks", True)


@pytest.mark.promise("bounded-input")
def test_a_line_is_not_decoded_if_http_would_not_decode_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []

    def decode(text: bytes) -> Any:
        decoded.append(len(text))
        return decode_object(text)

    monkeypatch.setattr(validation, "decode_object", decode)
    lines = [request(1), request(2, body={"input": [[]] * 40_000}), request(3, body={"input": "a" * 100_000})]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    check = Validation("/v1/embeddings", 10, 10**6, DOCUMENT_LIMITS)
    while not check.is_done:
        check.read(read_lines(path, check.offset, check.lines, 10**6))
    assert [(found.code, found.line) for found in check.errors] == [("line_too_long", 2)]
    assert len(decoded) == 2
