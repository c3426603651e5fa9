"""Denormal numbers: floats below 1.2e-38, which are read and written as 0 in threads that compute.

The softmax of a masked key is such a number. Intel's processors take more than 100 cycles for each
operation on one: a batch with padding took a tenth longer, and the softmax of a layer with a sliding window
six times as long. As 0 they take no time, and no embedding changes: the sum of them is far below the rounding
of a weight.

The x86 processor has two bits for this in a register of each thread (`MXCSR`: DAZ and FTZ, in Intel's
"Software Developer's Manual", volume 1, section 10.2.3). A thread inherits the register of the thread that
starts it. ARM's processors compute denormal numbers at full speed.
"""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

from vecmill.hardware.system_calls import find_c_function

# `fenv_t` of glibc and musl on x86-64: 28 bytes of the x87 unit, and then MXCSR.
_FENV_BYTES, _MXCSR = 32, slice(28, 32)
_FLUSH_BITS = 0x8040  # FTZ and DAZ


def flush_denormals() -> None:
    """Read and write denormal numbers as 0 in this thread, where the processor is an x86-64 under Linux."""
    environment = _read()
    if environment is not None:
        flags = int.from_bytes(environment[_MXCSR], "little") | _FLUSH_BITS
        _write(environment[: _MXCSR.start] + flags.to_bytes(4, "little"))


@contextmanager
def kept_float_environment() -> Iterator[None]:
    """Restore how this thread computes floats at the end of the block, whatever code in it sets."""
    environment = _read()
    try:
        yield
    finally:
        if environment is not None:
            _write(environment)


def _read() -> bytes | None:
    """Return the floating-point environment of this thread, or `None` if its form is not known."""
    get = find_c_function("fegetenv")
    if get is None or platform.machine() != "x86_64":
        return None
    buffer = ctypes.create_string_buffer(_FENV_BYTES)
    return None if get(buffer) else buffer.raw


def _write(environment: bytes) -> None:
    put = find_c_function("fesetenv")
    if put is not None:
        put(ctypes.create_string_buffer(environment, _FENV_BYTES))
