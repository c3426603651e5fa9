"""A failure reaches only the texts that cause it, at a bounded price."""

import math

import numpy as np
import pytest

from vecmill.batching.containment import Run, run_contained
from vecmill.batching.memory_limit import MemoryLimit
from vecmill.engines.fake import FakeEngine, Fault, FaultScript, hash_row
from vecmill.errors import DeviceLost, InferenceFailed, NonFiniteOutput
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings

POISON, SPOILED = 666, 667


def sequences(*texts: int) -> list[TokenSequence]:
    return [TokenSequence.of([text, 1, 2]) for text in texts]


def run(engine: FakeEngine) -> Run:
    return lambda batch: engine.run(batch, width=1)


@pytest.mark.promise("failure-contained")
@pytest.mark.parametrize("size", [1, 2, 3, 8, 17, 64])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_only_the_guilty_text_fails(size: int, place: float) -> None:
    engine = FakeEngine(faults=FaultScript(poison=frozenset({POISON})))
    texts = list(range(1_000, 1_000 + size))
    guilty = round(place * (size - 1))
    texts[guilty] = POISON
    batch = sequences(*texts)
    outcomes = run_contained(run(engine), batch, MemoryLimit()).outcomes
    for index, outcome in enumerate(outcomes):
        if index == guilty:
            assert isinstance(outcome, InferenceFailed)
        else:
            np.testing.assert_array_equal(outcome, hash_row(batch[index].token_ids, 16)[None])
    assert len(engine.calls) - 1 <= 2 * math.ceil(math.log2(size))


@pytest.mark.promise("failure-contained")
def test_a_batch_of_guilty_texts_costs_a_bounded_number_of_calls() -> None:
    engine = FakeEngine(faults=FaultScript(poison=frozenset({POISON})))
    outcomes = run_contained(run(engine), sequences(*[POISON] * 32), MemoryLimit()).outcomes
    assert all(isinstance(outcome, InferenceFailed) for outcome in outcomes)
    assert len(engine.calls) == 2 * 32 - 1


def test_a_failure_that_does_not_repeat_costs_nobody_anything() -> None:
    engine = FakeEngine(faults=FaultScript(calls={0: Fault.RAISE}))
    outcomes = run_contained(run(engine), sequences(1, 2, 3), MemoryLimit()).outcomes
    assert not any(isinstance(outcome, Exception) for outcome in outcomes)


@pytest.mark.promise("finite-embeddings")
def test_a_row_that_is_not_finite_fails_alone() -> None:
    engine = FakeEngine(faults=FaultScript(nan=frozenset({SPOILED})))
    outcomes = run_contained(run(engine), sequences(1, SPOILED, 3), MemoryLimit()).outcomes
    assert [isinstance(outcome, NonFiniteOutput) for outcome in outcomes] == [False, True, False]
    assert len(engine.calls) == 1


@pytest.mark.promise("finite-embeddings")
def test_too_few_rows_are_never_handed_out() -> None:
    engine = FakeEngine(faults=FaultScript(calls={0: Fault.SHORT}))
    batch = sequences(1, 2)
    outcomes = run_contained(run(engine), batch, MemoryLimit()).outcomes
    for sequence, outcome in zip(batch, outcomes, strict=True):
        np.testing.assert_array_equal(outcome, hash_row(sequence.token_ids, 16)[None])


def test_foreign_exceptions_do_not_cross_the_seam() -> None:
    def explode(batch: Batch) -> Embeddings:
        raise ZeroDivisionError("inner detail")

    (outcome,) = run_contained(explode, sequences(1), MemoryLimit()).outcomes
    assert isinstance(outcome, InferenceFailed)
    assert "inner detail" not in outcome.message


def test_on_a_lost_device_nothing_is_tried_again() -> None:
    calls: list[int] = []

    def lose(batch: Batch) -> Embeddings:
        calls.append(len(batch))
        raise DeviceLost("cuda:0 is lost")

    with pytest.raises(DeviceLost):
        run_contained(lose, sequences(*range(8)), MemoryLimit())
    assert calls == [8]


def test_what_ends_a_thread_is_not_contained() -> None:
    engine = FakeEngine(faults=FaultScript(calls={0: Fault.DIE}))
    with pytest.raises(SystemExit):
        run_contained(run(engine), sequences(1), MemoryLimit())
