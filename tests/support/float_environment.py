"""Floats of the thread that runs the tests, where an x86 processor plays a Mac."""

from concurrent.futures import ThreadPoolExecutor

import onnxruntime

from support.small_exports import small_graph


def let_another_thread_open_the_first_session() -> None:
    """Keep denormal numbers in this thread.

    ONNX Runtime sets how floats are computed in the thread that opens the first session of a process. Under
    Linux vecmill takes that back. On Apple's processors nothing is set, so it has no call for it there.
    """
    with ThreadPoolExecutor(1) as pool:
        pool.submit(onnxruntime.InferenceSession, small_graph().SerializeToString()).result()
