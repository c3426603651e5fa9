"""Calls that run out of memory are made smaller, and grow again slowly."""

import math

import numpy as np
import pytest

from vecmill.batching.containment import run_contained
from vecmill.batching.memory_limit import GROWTH, MemoryLimit, is_out_of_memory
from vecmill.engines.fake import FakeEngine, hash_row
from vecmill.errors import InferenceFailed
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings

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
