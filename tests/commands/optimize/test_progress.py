"""What `vecmill optimize` says on the terminal when it ends."""

import re

from support.landscape import InventedMachine, search_space_of
from vecmill.commands.optimize.choice import Goal
from vecmill.commands.optimize.progress import describe_unmeasured
from vecmill.commands.optimize.search import NO_TIME, Search
from vecmill.serving_plan.plans import describe_plan

LIMIT_S = 60.0


def search(*, load_s: float, limit_s: float = LIMIT_S) -> str | None:
    space = search_space_of()
    machine = InventedMachine(space, 0, load_s=load_s)
    measured = Search(space, machine, Goal(), limit_s=limit_s, clock=machine.now).run()
    told = describe_unmeasured(measured, limit_s)
    left = [plan for plan, reason in measured.failures.items() if reason == NO_TIME]
    assert all(describe_plan(plan) in (told or "") for plan in left)
    assert bool(left) is (told is not None)
    return told


def test_what_a_short_limit_left_out_is_named_with_a_limit_that_suffices() -> None:
    told = search(load_s=9.0)
    assert told is not None
    assert told.startswith("Not measured, because the time limit was reached: ")
    enough = re.search(r"--time-limit-s (\d+)", told)
    assert enough is not None
    assert search(load_s=9.0, limit_s=float(enough[1])) is None


def test_a_run_with_time_for_all_says_nothing() -> None:
    assert search(load_s=0.5, limit_s=300.0) is None
