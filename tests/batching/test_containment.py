"""A failure reaches only the texts that cause it, at a bounded price. Calls shrink when memory runs out."""

import math
from dataclasses import replace

import numpy as np
import pytest

from vecmill.batching.containment import GROWTH, MemoryLimit, Run, is_out_of_memory, run_contained
from vecmill.engines.fake import FakeEngine, Fault, FaultScript, hash_row
from vecmill.errors import DeviceLost, InferenceFailed, NonFiniteOutput
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings, Output

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
@pytest.mark.parametrize("part", ["values", "length", "other output"])
def test_whatever_of_an_output_is_not_finite_fails_its_text(part: str) -> None:
    values, lengths, others = (np.ones((2, 4), np.float32) for _ in range(3))
    {"values": values, "length": lengths, "other output": others}[part][1, 0] = np.inf
    rows = replace(
        Embeddings.one_per_text(values, computed_tokens=2, lengths=lengths[:, 0]),
        others={Output.TOKEN_VECTORS: Embeddings.one_per_text(others, computed_tokens=2)},
    )
    outcomes = run_contained(lambda _: rows, sequences(1, 2), MemoryLimit()).outcomes
    assert [isinstance(outcome, NonFiniteOutput) for outcome in outcomes] == [False, True]


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


class Unforeseen(BaseException):
    """Not an `Exception`, as `SystemExit` is not."""


@pytest.mark.promise("failure-contained")
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Unforeseen(), MemoryError()], ids=repr
)
def test_whatever_a_call_raises_fails_only_the_guilty_text(error: BaseException) -> None:
    engine = FakeEngine()

    def run(batch: Batch) -> Embeddings:
        if POISON in batch.token_ids:
            raise error
        return engine.run(batch, width=1)

    batch = sequences(1, POISON, 3)
    outcomes = run_contained(run, batch, MemoryLimit()).outcomes
    assert isinstance(outcomes[1], InferenceFailed)
    for index in (0, 2):
        np.testing.assert_array_equal(outcomes[index], hash_row(batch[index].token_ids, 16)[None])


LENGTH = 10


class SmallMachine(FakeEngine):
    """Has memory for a call of `room` tokens."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.failures = 0

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        if len(batch.token_ids) > self.room:
            self.failures += 1
            raise InferenceFailed("The engine failed.") from RuntimeError("std::bad_alloc")
        return super().run(batch, width=width)


def compute(engine: FakeEngine, memory: MemoryLimit, texts: int) -> None:
    sequences = [TokenSequence.of([text] * LENGTH) for text in range(texts)]
    outcomes = run_contained(lambda batch: engine.run(batch, width=1), sequences, memory).outcomes
    for sequence, outcome in zip(sequences, outcomes, strict=True):
        np.testing.assert_array_equal(outcome, hash_row(sequence.token_ids, 16)[None])


def test_after_a_failure_batches_fit_at_once() -> None:
    engine, memory = SmallMachine(room=160), MemoryLimit()
    compute(engine, memory, 64)
    assert engine.failures == 2  # 640 and 320 tokens
    for _ in range(10):
        compute(engine, memory, 64)
    assert engine.failures == 2
    assert max(texts for texts, _ in engine.calls) == 16


def test_the_limit_grows_slowly_until_calls_are_whole_again() -> None:
    engine, memory = SmallMachine(room=160), MemoryLimit()
    compute(engine, memory, 64)
    engine.room = 10**9
    calls = 0
    while memory.tokens < 64 * LENGTH:
        compute(engine, memory, 64)
        calls += 1
    assert 20 < calls < 200
    before = len(engine.calls)
    compute(engine, memory, 64)
    assert len(engine.calls) == before + 1


def test_small_calls_say_nothing_about_large_ones() -> None:
    memory = MemoryLimit()
    memory.halve(1_000)
    for _ in range(1_000):
        memory.grow(100)
    assert memory.tokens == 500
    memory.grow(400)
    assert memory.tokens == pytest.approx(500 * GROWTH)


def test_a_single_text_is_always_tried() -> None:
    memory = MemoryLimit()
    for _ in range(100):
        memory.halve(1)
    assert memory.tokens == 1
    assert memory.allows(8_192, 1)
    assert not memory.allows(8_192, 2)


def test_other_failures_set_no_limit() -> None:
    memory = MemoryLimit()

    def fail(batch: Batch) -> Embeddings:
        raise ValueError("wrong")

    run_contained(fail, [TokenSequence.of([1])] * 4, memory)
    assert memory.tokens == math.inf


# As ONNX Runtime, OpenVINO, CUDA and Python say it.
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        RuntimeError("bfc_arena.cc:360 Failed to allocate memory for requested buffer of size 76800000"),
        RuntimeError("CUDA failure 2: out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 12 bytes."),
    ],
    ids=str,
)
def test_errors_of_memory_are_recognised_also_as_causes(error: Exception) -> None:
    assert is_out_of_memory(error)
    ours = InferenceFailed("ONNX Runtime failed.")
    ours.__cause__ = error
    assert is_out_of_memory(ours)
    assert not is_out_of_memory(InferenceFailed("ONNX Runtime failed."))


def test_a_sequence_gets_what_it_makes_of_its_output_and_fails_alone() -> None:
    def give_up(rows: object) -> FloatArray:
        raise ValueError("cannot be reduced")

    plain, halved, failing = sequences(1, 2, 3)
    halved = halved.reduced(lambda rows: rows[:, :8], b"halved")
    failing = failing.reduced(give_up, b"failing")
    assert len({each.key for each in (halved, failing, *sequences(1, 2, 3))}) == 5
    outcomes = run_contained(run(FakeEngine()), [plain, halved, failing], MemoryLimit()).outcomes
    np.testing.assert_array_equal(outcomes[0], hash_row(plain.token_ids, 16)[None])
    np.testing.assert_array_equal(outcomes[1], hash_row(halved.token_ids, 16)[None, :8])
    assert isinstance(outcomes[2], InferenceFailed)
