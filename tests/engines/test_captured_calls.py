"""Calls on an accelerator: their order, captured shapes and what ends captures, on a device that records.

The device computes on the processor, and keeps the order of what it was told.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from support.tiny_models import save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.engines.torch.captured_shapes import LENGTH_MULTIPLE, MOST_TOKENS, list_shapes
from vecmill.engines.torch.device_calls import Choose, Running, Sent, replay_into
from vecmill.engines.torch.engine import TorchEngine
from vecmill.engines.torch.overlapped_program import OverlappedProgram, ProgramInputs
from vecmill.engines.torch.program import make_program
from vecmill.engines.torch.replica import Outputs, Program, Replica, ShapeRounding
from vecmill.errors import DeviceLost, InferenceFailed
from vecmill.graphs.batch_layout import IndexedLayout
from vecmill.graphs.ops import PACKED_OPERATOR
from vecmill.graphs.steps import Steps, list_steps
from vecmill.models import ModelDescription, locate_model
from vecmill.values.aliases import IntArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import OutputShape
from vecmill.values.engine_plan import EngineInfo
from vecmill.values.positions import BatchShape

CAPTURED_BYTES = 100
PATIENCE_S = 30.0
SHORT, MIDDLE, LONG = (BatchShape(size, 1, size, 1, size, 1) for size in (16, 32, 64))
TOLERANCE = 1e-5


@dataclass
class RecordingCalls:
    """The calls of a device that is the processor. `errors` are raised by the next captures or reads."""

    events: list[str] = field(default_factory=list)
    errors: dict[str, Exception] = field(default_factory=dict)
    before: dict[str, Callable[[], object]] = field(default_factory=dict)
    held_bytes: int = 0

    def send(self, arrays: Sequence[IntArray]) -> Sent:
        self._note("send")
        return Sent([torch.from_numpy(array.copy()) for array in arrays], None)

    def compute(self, program: Program, sent: Sent, choose: Choose) -> Running:
        self._note("compute")
        outputs = choose(program(sent.tensors))
        self._note("copy out")
        return Running([output.clone() for output in outputs], None)

    def read(self, running: Running) -> Sequence[torch.Tensor]:
        self._note("read")
        return running.outputs

    def capture(self, program: Program, arrays: Sequence[IntArray]) -> Program:
        self._note(f"capture {len(arrays[0])}")
        self.held_bytes += CAPTURED_BYTES
        inputs = [torch.from_numpy(array.copy()) for array in arrays]
        outputs = program(inputs)

        def replay() -> None:
            self._note(f"replay {len(arrays[0])}")
            for own, new in zip(outputs, program(inputs), strict=True):
                own.copy_(new)

        return replay_into(inputs, replay, outputs)

    def captured_bytes(self) -> int:
        return self.held_bytes

    def _note(self, event: str) -> None:
        self.events.append(event)
        kind = event.split(" ")[0]
        if kind in self.before:
            self.before[kind]()
        if kind in self.errors:
            raise self.errors.pop(kind)


@dataclass(frozen=True)
class Model:
    """A tiny model and its program on the processor."""

    description: ModelDescription
    steps: Steps
    program: torch.nn.Module

    def on(self, calls: RecordingCalls, *shapes: BatchShape, **options: Any) -> OverlappedProgram:
        return OverlappedProgram(
            lambda tensors: self.program(*tensors),
            ProgramInputs(tuple(self.steps.inputs), self.description.token_count, ShapeRounding(8), False),
            calls,
            output_shape=self.description.output_shape,
            shapes=shapes,
            **options,
        )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    directory = save_tiny_bert(tmp_path_factory.mktemp("model"))
    description = describe_model(locate_model(directory))
    steps = list_steps(build_graph(description, IndexedLayout, runtime_operators=(PACKED_OPERATOR,)))
    return Model(description, steps, make_program(steps, dtype=torch.float32, device=torch.device("cpu")))


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def text_of(tokens: int) -> Batch:
    return Batch.of([TokenSequence.of(range(5, 5 + tokens))])


def capture_all(program: OverlappedProgram) -> None:
    while program.capture_next():
        pass


def test_a_call_is_sent_computed_copied_out_and_read_in_this_order(model: Model) -> None:
    calls = RecordingCalls()
    model.on(calls)(text_of(5))
    assert calls.events == ["send", "compute", "copy out", "read"]


def test_a_captured_call_gives_what_the_launched_one_gives(model: Model) -> None:
    calls = RecordingCalls()
    program = model.on(calls, LONG, MIDDLE, SHORT)
    batches = [text_of(tokens) for tokens in (1, 9, 16, 17, 33, 40)]
    launched = [program(batch)[0] for batch in batches]
    capture_all(program)
    calls.events.clear()
    for batch, expected in zip(batches, launched, strict=True):
        np.testing.assert_allclose(program(batch)[0], expected, atol=TOLERANCE)
    replays = [event for event in calls.events if event.startswith("replay")]
    assert replays == ["replay 16"] * 3 + ["replay 32"] + ["replay 64"] * 2


def test_an_answer_keeps_its_numbers_when_its_call_is_replayed_for_another(model: Model) -> None:
    program = model.on(RecordingCalls(), SHORT)
    capture_all(program)
    first = program(text_of(5))[0]
    kept = first.copy()
    program(text_of(9))
    np.testing.assert_array_equal(first, kept)


def test_the_largest_shape_is_captured_first(model: Model) -> None:
    calls = RecordingCalls()
    capture_all(model.on(calls, LONG, MIDDLE, SHORT))
    assert calls.events == ["capture 64", "capture 32", "capture 16"]


def test_what_has_no_shape_or_would_be_mostly_padding_is_launched(model: Model) -> None:
    calls = RecordingCalls()
    large = BatchShape(512, 16, 32, 16, 32, 1)
    program = model.on(calls, large, MIDDLE)
    capture_all(program)
    calls.events.clear()
    program(text_of(40))  # longer than any
    program(Batch.of([TokenSequence.of(range(5, 10))] * 2))  # mostly padding in the large one
    assert calls.events == ["send", "compute", "copy out", "read"] * 2


def test_captures_end_at_their_limit_of_memory_and_what_was_captured_stays(
    model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    calls = RecordingCalls()
    program = model.on(calls, LONG, MIDDLE, SHORT, most_bytes=CAPTURED_BYTES)
    capture_all(program)
    assert calls.events == ["capture 64", "capture 32"]
    assert "2 shapes of calls are not captured: they hold more than" in caplog.text
    calls.events.clear()
    program(text_of(40))
    program(text_of(5))
    replays = [event for event in calls.events if event.startswith("replay")]
    assert replays == ["replay 64"] * 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "the device has no memory left"),
        (RuntimeError("operation not permitted when stream is capturing"), "RuntimeError: operation"),
    ],
)
def test_an_error_ends_the_captures_and_calls_are_launched(
    model: Model, error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = RecordingCalls(errors={"capture": error})
    program = model.on(calls, LONG, SHORT)
    assert not program.capture_next()
    assert not program.capture_next()
    assert f"2 shapes of calls are not captured: {reason}" in caplog.text
    program(text_of(5))
    assert calls.events == ["capture 64", "send", "compute", "copy out", "read"]


def test_a_device_that_is_lost_during_a_capture_ends_the_lane_at_the_next_call(model: Model) -> None:
    lost = RuntimeError("CUDA error: an illegal memory access was encountered")
    calls = RecordingCalls(errors={"capture": lost, "read": lost})
    program = model.on(calls, LONG)

    def probe() -> None:
        raise lost

    assert not program.capture_next()
    with pytest.raises(DeviceLost):
        Replica("cuda:0", program, probe).run(text_of(5))


def test_a_call_without_memory_fails_alone(model: Model) -> None:
    calls = RecordingCalls(errors={"compute": torch.OutOfMemoryError("CUDA out of memory")})
    replica = Replica("cuda:0", model.on(calls), lambda: None)
    with pytest.raises(InferenceFailed, match="ran out of memory"):
        replica.run(text_of(5))
    replica.run(text_of(5))
    assert calls.events == ["send", "compute", "send", "compute", "copy out", "read"]


def test_a_call_is_prepared_and_computed_while_another_is_read(model: Model) -> None:
    reading, finish = threading.Event(), threading.Event()
    calls = RecordingCalls()
    program = model.on(calls)

    def hold_the_first() -> None:
        if not reading.is_set():
            reading.set()
            assert finish.wait(PATIENCE_S)

    calls.before["read"] = hold_the_first
    with ThreadPoolExecutor(1) as lane:
        first = lane.submit(run_alone, program, text_of(5))
        assert reading.wait(PATIENCE_S)
        program(text_of(9))
        assert not first.done()
        finish.set()
        first.result(PATIENCE_S)
    assert calls.events == ["send", "compute", "copy out", "read"] * 2


def test_a_capture_waits_for_the_call_that_computes_and_for_the_next_one(model: Model) -> None:
    computing, finish = threading.Event(), threading.Event()
    calls = RecordingCalls()
    program = model.on(calls, LONG)

    def hold() -> None:
        computing.set()
        assert finish.wait(PATIENCE_S)

    calls.before["compute"] = hold
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(run_alone, program, text_of(5))
        assert computing.wait(PATIENCE_S)
        capture = threads.submit(capture_alone, program)
        wait_until(lambda: len(program._turns._changed._waiters) == 1)  # type: ignore[attr-defined]
        second = threads.submit(run_alone, program, text_of(5))
        wait_until(lambda: program._turns._waiting_calls == 1)
        finish.set()
        for each in (first, second, capture):
            each.result(PATIENCE_S)
    finished = [place for place, event in enumerate(calls.events) if event == "copy out"]
    assert len(finished) == 2
    assert calls.events.index("capture 64") > max(finished)


def test_the_engine_captures_in_the_background_after_its_warm_up_and_ends_it_when_closed(
    model: Model,
) -> None:
    calls = RecordingCalls()
    program = model.on(calls, LONG, MIDDLE, SHORT)
    info = EngineInfo(
        name="torch",
        precision="fp32",
        device="cuda:0",
        dim=model.description.dim,
        max_tokens=model.description.max_tokens,
        lane_widths=(1,),
        output_shape=OutputShape.TEXT,
        normalizes=model.description.normalizes_output,
        parallel_calls=2,
    )
    replicas = [Replica("cuda:0", program, lambda: None)] * 2
    engine = TorchEngine(info, replicas, shared=False, captures=[program.capture_next])
    assert not any(event.startswith("capture") for event in calls.events)
    engine.warm_up()
    wait_until(lambda: "capture 64" in calls.events)
    engine.close()
    captured = [event for event in calls.events if event.startswith("capture")]
    assert captured == ["capture 64", "capture 32", "capture 16"][: len(captured)]
    assert "vecmill-capture" not in {one.name for one in threading.enumerate()}


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("max_tokens", [77, 100, 512, 8192])
def test_shapes_are_few_and_small_and_hold_one_text_of_any_short_length(
    max_tokens: int, is_packed: bool
) -> None:
    shapes = list_shapes(max_tokens, is_packed=is_packed)
    assert len(shapes) <= 70
    assert [shape.positions for shape in shapes] == sorted((s.positions for s in shapes), reverse=True)
    assert all(
        shape.positions <= MOST_TOKENS and shape.longest < max_tokens + LENGTH_MULTIPLE for shape in shapes
    )
    for tokens in range(1, min(max_tokens, 512) + 1):
        needed = ShapeRounding(LENGTH_MULTIPLE).round(BatchShape(tokens, 1, tokens, 1, tokens))
        assert any(shape.holds(needed) for shape in shapes), tokens


def run_alone(program: OverlappedProgram, batch: Batch) -> Outputs:
    with torch.inference_mode():
        return program(batch)


def capture_alone(program: OverlappedProgram) -> bool:
    with torch.inference_mode():
        return program.capture_next()


def wait_until(holds: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if holds():
            return
        done.wait(0.01)
    raise AssertionError("it did not happen")
