"""A session for long texts has threads of low priority, and calls as those of any other session."""

import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vecmill.engines.long_texts import YieldingSession
from vecmill.hardware.priority import NICENESS

THREADS = Path("/proc/self/task")


class Recorded:
    """A session that says in which threads it is opened and called."""

    def __init__(self) -> None:
        self.opened_in = threading.get_ident()
        self.threads: list[int] = []
        self.priorities: list[int] = []

    def run(self, names: list[str] | None, feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        self.threads.append(threading.get_ident())
        self.priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        if "fail" in feed:
            raise ValueError("scripted")
        return [feed["x"] + 1, names, run_options]


@pytest.mark.linux
def test_one_thread_of_low_priority_opens_the_session_and_runs_all_calls() -> None:
    opened: list[Recorded] = []

    def open_session() -> Recorded:
        opened.append(Recorded())
        return opened[0]

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    session = YieldingSession(open_session)
    for number in range(3):
        assert session.run(["out"], {"x": number}, "options") == [number + 1, ["out"], "options"]
    with pytest.raises(ValueError, match="scripted"):
        session.run(None, {"fail": 1})
    assert session.run(None, {"x": 7})[0] == 8  # the thread goes on
    assert set(opened[0].threads) == {opened[0].opened_in}
    assert opened[0].opened_in != threading.get_ident()
    assert set(opened[0].priorities) == {before + NICENESS}
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


@pytest.mark.linux
def test_the_priority_is_lower_than_that_of_a_nice_process() -> None:
    session = Recorded()

    def serve() -> None:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + 3)
        YieldingSession(lambda: session).run(None, {"x": 1})

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    nice = threading.Thread(target=serve)
    nice.start()
    nice.join()
    assert session.priorities == [min(before + 3 + NICENESS, 19)]


@pytest.mark.linux
def test_the_threads_of_onnx_runtime_inherit_the_priority() -> None:
    import onnxruntime

    def native_threads() -> set[int]:
        return {int(path.name) for path in THREADS.iterdir()}

    def open_session() -> "onnxruntime.InferenceSession":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 3
        return onnxruntime.InferenceSession(small_graph(), options, providers=["CPUExecutionProvider"])

    before, usual = native_threads(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    session = YieldingSession(open_session)
    added = native_threads() - before
    assert len(added) >= 3  # the caller and two more
    assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in added} == {usual + NICENESS}
    (found,) = session.run(None, {"x": np.ones(4, np.float32)})
    np.testing.assert_array_equal(found, np.full(4, 2, np.float32))


def test_an_error_at_opening_is_the_callers_and_no_thread_is_left() -> None:
    def fail() -> Recorded:
        raise OSError("scripted")

    with pytest.raises(OSError, match="scripted"):
        YieldingSession(fail)
    session = YieldingSession(Recorded)
    (thread,) = (found for found in threading.enumerate() if found.ident == session._session.opened_in)
    del session
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()


def small_graph() -> bytes:
    """The graph x + x."""
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(model.SerializeToString())
