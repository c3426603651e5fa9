"""Work of low priority: in a thread of its own, whose errors reach the caller."""

import os
import threading

import pytest

from vecmill.hardware.memory import mapped_mb
from vecmill.hardware.priority import NICENESS, call_with_low_priority


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.linux
async def test_the_work_has_low_priority_and_the_caller_keeps_its_own() -> None:
    before = niceness()
    assert await call_with_low_priority(niceness, "low") == min(before + NICENESS, 19)
    assert niceness() == before


async def test_an_error_reaches_the_caller() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await call_with_low_priority(fail, "low")


@pytest.mark.linux
def test_memory_that_is_written_counts() -> None:
    before = mapped_mb()
    written = bytearray(os.urandom(1)) * 50_000_000
    assert 40 <= mapped_mb() - before <= 200
    assert len(written) == 50_000_000
