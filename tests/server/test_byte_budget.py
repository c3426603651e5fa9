"""The bytes of all requests together have one limit, and each request gives its own back."""

import pytest

from vecmill_server.base.byte_budget import MAX_DEFAULT_BYTES, SMALL_BYTES, ByteBudget, default_budget_bytes
from vecmill_server.base.errors import BodyTooLarge, BuffersFull

MIB = 1024 * 1024


def test_a_request_gives_its_bytes_back() -> None:
    budget = ByteBudget(100 * MIB)
    with budget.hold() as held:
        held.reserve(10 * MIB)
        held.add(MIB)
        assert budget.held == held.count == 11 * MIB
    assert budget.held == 0
    held.release()  # once more
    assert budget.held == held.count == 0


def test_bytes_are_given_back_after_an_error() -> None:
    budget = ByteBudget(100 * MIB)
    budget.hold().reserve(40 * MIB)
    with pytest.raises(BuffersFull), budget.hold() as held:
        held.reserve(40 * MIB)
    assert budget.held == 40 * MIB


def test_large_requests_leave_a_quarter_to_small_ones() -> None:
    budget = ByteBudget(4 * MIB)
    budget.hold().reserve(3 * MIB)
    with pytest.raises(BuffersFull):
        budget.hold().reserve(SMALL_BYTES + 1)
    for _ in range(MIB // SMALL_BYTES):
        budget.hold().reserve(SMALL_BYTES)
    with pytest.raises(BuffersFull):
        budget.hold().reserve(1)


def test_a_request_that_grows_in_small_steps_is_a_large_one() -> None:
    budget = ByteBudget(4 * MIB)
    budget.hold().reserve(2 * MIB)
    held = budget.hold()
    for _ in range(64):
        held.reserve(16 * 1024)
    assert budget.held == 3 * MIB
    with pytest.raises(BuffersFull):
        held.reserve(16 * 1024)


def test_a_request_that_can_never_fit_is_told_so() -> None:
    with pytest.raises(BodyTooLarge, match="--max-buffered-bytes"):
        ByteBudget(4 * MIB).hold().reserve(3 * MIB + 1)
    budget = ByteBudget(4 * MIB)
    budget.hold().reserve(1)
    with pytest.raises(BuffersFull):  # it fits when the other has gone
        budget.hold().reserve(3 * MIB)


def test_the_default_suits_the_machine() -> None:
    assert 0 < default_budget_bytes() <= MAX_DEFAULT_BYTES
