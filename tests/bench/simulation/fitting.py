"""Fits the machine of the simulation to one real run on one core under one load."""

import itertools
import statistics
from collections.abc import Sequence

import numpy as np

from bench.simulation.machine import CallCost, Machine, PythonCost
from bench.simulation.measured import MeasuredCall, MeasuredRun

# Lanes that had nothing to do are not measured: the time between two calls is a turn if it is shorter.
LONGEST_TURN_S = 2e-3


def fit_machine(run: MeasuredRun) -> Machine:
    """Return a machine of one core, from the calls and the event loop's time of a run on one core."""
    return Machine(1, fit_calls(run.calls), fit_python(run))


def fit_calls(calls: Sequence[MeasuredCall]) -> CallCost:
    """Fit a line to the processor time of calls on one core, which other threads do not make longer."""
    rows = np.array([(1.0, sum(call.lengths), sum(n * n for n in call.lengths)) for call in calls])
    times = np.array([call.cpu_s for call in calls])
    # Relative errors count, so that short calls are fitted as well as long ones.
    found, *_ = np.linalg.lstsq(rows / times[:, None], np.ones(len(times)), rcond=None)
    fixed_s, per_token_s, per_pair_s = (max(float(value), 0.0) for value in found)
    fitted = rows @ np.array([fixed_s, per_token_s, per_pair_s])
    lasted_s = max(calls[-1].ended_at - calls[0].began_at, 1e-9)
    noise = tuple((times / fitted).tolist())
    return CallCost(fixed_s, per_token_s, per_pair_s, noise=noise, noise_s=lasted_s)


def fit_python(run: MeasuredRun) -> PythonCost:
    """Return the times of Python code: of the event loop for a request, and of a lane between two calls."""
    by_lane: dict[str, list[MeasuredCall]] = {}
    for call in run.calls:
        by_lane.setdefault(call.lane, []).append(call)
    turns = [
        after.began_at - before.ended_at
        for calls in by_lane.values()
        for before, after in itertools.pairwise(calls)
    ]
    short = [turn for turn in turns if turn < LONGEST_TURN_S]
    turn_s = statistics.median(short) if short else LONGEST_TURN_S
    return PythonCost(run.loop_s / run.requests, turn_s)
