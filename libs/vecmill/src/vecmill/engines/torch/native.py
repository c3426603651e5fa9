"""Calls of a compiled program on the CPU without Python's global interpreter lock.

torch's own binding for compiled packages holds the lock during a call, which stops all other calls and the
event loop. The library inside a package has a stable C interface, and `ctypes` releases the lock.

Source: `torch/csrc/inductor/aoti_runtime/interface.h`. A call takes ownership of its inputs. The caller owns
the outputs.
"""

import ctypes
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._C import _aoti

from vecmill.errors import InferenceFailed, UnsupportedModel

# Programs call this function for operators without a C interface; such programs need more than the library.
_NEEDS_TORCH = b"proxy_executor_call"


def extract_library(package: Path, library: Path) -> None:
    """Write the library in `package` to `library`.

    Raises `UnsupportedModel` if the program needs torch at run time.
    """
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
        sources = [name for name in names if name.endswith(".wrapper.cpp")]
        if any(_NEEDS_TORCH in archive.read(name) for name in sources):
            raise UnsupportedModel(
                "torch cannot compile an operator of this model without calls of torch itself. Use the torch "
                "engine."
            )
        [found] = [name for name in names if name.endswith(".wrapper.so")]
        with archive.open(found) as source, library.open("wb") as target:
            shutil.copyfileobj(source, target)


class NativeProgram:
    """The program in `library`, for up to `runners` calls at once."""

    def __init__(self, library: Path, runners: int) -> None:
        self._library = ctypes.CDLL(str(library))
        self._container = ctypes.c_void_p()
        status = self._library.AOTInductorModelContainerCreateWithDevice(
            ctypes.byref(self._container), ctypes.c_size_t(runners), b"cpu", None
        )
        count = ctypes.c_size_t()
        status = status or self._library.AOTInductorModelContainerGetNumOutputs(
            self._container, ctypes.byref(count)
        )
        if status:
            raise UnsupportedModel(f"torch {torch.__version__} cannot open the program in {library}.")
        self._outputs = count.value

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Compute the outputs for `tensors`. Raises `InferenceFailed`; torch prints the reason on stderr."""
        inputs = _handles([_pointer(one) for one in _aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))])
        outputs = _handles([None] * self._outputs)
        status = self._library.AOTInductorModelContainerRun(
            self._container,
            inputs,
            ctypes.c_size_t(len(inputs)),
            outputs,
            ctypes.c_size_t(len(outputs)),
            None,
            None,
        )
        if status:
            raise InferenceFailed("The compiled program failed.")
        found: list[torch.Tensor] = _aoti.alloc_tensors_by_stealing_from_void_ptrs([*map(_capsule, outputs)])
        return found

    def __del__(self) -> None:
        if self._container.value:
            self._library.AOTInductorModelContainerDelete(self._container)


def _handles(pointers: Sequence[int | None]) -> Any:
    return (ctypes.c_void_p * len(pointers))(*pointers)


def _pointer(capsule: object) -> int | None:
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    pointer: int | None = read(capsule, None)
    return pointer


def _capsule(pointer: int | None) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(pointer, None, None)
