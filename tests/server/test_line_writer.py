"""Writing never waits: a reader that sleeps loses lines, which are counted, and loses nothing else."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from support.http_server import wait_until
from vecmill_server.telemetry import line_writer
from vecmill_server.telemetry.line_writer import LineWriter, join_lines

LINE = "x" * 1023


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe, to be read and to be written."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def read_all(fd: int) -> list[str]:
    with open(fd, encoding="utf-8", closefd=False) as lines:
        return lines.read().splitlines()


def test_lines_arrive_in_order(pipe: tuple[int, int]) -> None:
    reader, end = pipe
    writer = LineWriter(end)
    for number in range(2000):
        writer.write(f"{number}")
    assert writer.flush(10.0)
    os.close(end)
    assert read_all(reader) == [f"{number}" for number in range(2000)]


def test_only_lines_that_may_wait_are_collected(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_writer, "COLLECT_S", 3600.0)
    reader, end = pipe
    writer = LineWriter(end)
    with open(reader, encoding="utf-8", closefd=False) as lines:
        for number in range(2):  # the thread pauses after the first, or collects both
            writer.write(f"later {number}", may_wait=True)
        writer.write("at once")
        assert [lines.readline() for _ in range(3)] == ["later 0\n", "later 1\n", "at once\n"]
        writer.write("later 2", may_wait=True)
        assert writer.flush(10.0)
        assert lines.readline() == "later 2\n"


def test_what_does_not_fit_is_dropped_and_counted_and_reported_once_lines_flow_again(
    pipe: tuple[int, int],
) -> None:
    reader, end = pipe
    writer = LineWriter(end, lambda lines: f"{lines} dropped", max_lines=10)
    sent = 0
    while writer.flush(0.05):  # until the pipe is full
        for _ in range(20):
            writer.write(LINE)
        sent += 20
    for _ in range(20):
        writer.write(LINE)
    sent += 20
    dropped = writer.dropped
    assert dropped >= 10
    taken: list[str] = []

    def read() -> None:
        taken.extend(read_all(reader))

    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: writer.flush(1.0))
    writer.write("the last")
    assert writer.flush(10.0)
    os.close(end)
    thread.join()
    assert sum(int(line.split()[0]) for line in taken if line.endswith(" dropped")) == dropped
    assert taken.count(LINE) + dropped == sent
    assert "the last" in taken


def test_a_flush_in_vain_is_not_repeated(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    for _ in range(100):
        writer.write(LINE)
    assert not writer.flush(0.01)
    assert not writer.flush(3600.0)


def test_a_closed_pipe_and_a_non_blocking_one_do_not_end_the_writing(pipe: tuple[int, int]) -> None:
    reader, end = pipe
    os.set_blocking(end, False)
    writer = LineWriter(end)
    for _ in range(100):
        writer.write(LINE)
    assert not writer.flush(0.05)
    os.close(reader)
    wait_until(lambda: writer.flush(1.0))
    assert writer.dropped > 0


def test_lines_are_joined_to_pieces_that_a_pipe_does_not_mix() -> None:
    lines = [b"a\n", b"bb\n", b"c" * 9 + b"\n", b"d\n"]
    assert list(join_lines(lines, size=5)) == [b"a\nbb\n", b"c" * 9 + b"\n", b"d\n"]
    assert list(join_lines([])) == []
