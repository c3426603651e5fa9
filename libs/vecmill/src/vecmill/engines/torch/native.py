"""A compiled program on the processor, called without Python's lock.

torch's own binding of compiled packages holds the interpreter's lock for as long as a call takes: no other
call could run meanwhile, and no event loop either. The library inside a package has a C interface that
is kept stable, and `ctypes` lets the lock go.

Source: `torch/csrc/inductor/aoti_runtime/interface.h`. Inputs are stolen by a call, outputs from it.
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

# What a program calls for operators that have no C interface of their own: it needs more than this library.
_NEEDS_TORCH = b"proxy_executor_call"


def extract_library(package: Path, library: Path) -> None:
    """Write the library in `package` to `library`. Raises `UnsupportedModel` if it needs more."""
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
        sources = [name for name in names if name.endswith(".wrapper.cpp")]
        if any(_NEEDS_TORCH in archive.read(name) for name in sources):
            raise UnsupportedModel(
                "torch compiles an operator of this model into a call of its own. Use the torch engine."
            )
        [found] = [name for name in names if name.endswith(".wrapper.so")]
        with archive.open(found) as source, library.open("wb") as target:
            shutil.copyfileobj(source, target)


class NativeProgram:
    """The program in `library`, for as many calls at once as `runners`. It has one output."""

    def __init__(self, library: Path, runners: int) -> None:
        self._library = ctypes.CDLL(str(library))
        self._container = ctypes.c_void_p()
        status = self._library.AOTInductorModelContainerCreateWithDevice(
            ctypes.byref(self._container), ctypes.c_size_t(runners), b"cpu", None
        )
        if status:
            raise UnsupportedModel(f"torch {torch.__version__} cannot open the program in {library}.")

    def __call__(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The output for `tensors`, in their order. Raises `InferenceFailed`; why is on standard error."""
        inputs = _handles([_pointer(one) for one in _aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))])
        outputs = _handles([None])
        status = self._library.AOTInductorModelContainerRun(
            self._container, inputs, ctypes.c_size_t(len(inputs)), outputs, ctypes.c_size_t(1), None, None
        )
        if status:
            raise InferenceFailed("The compiled program failed.")
        [output] = _aoti.alloc_tensors_by_stealing_from_void_ptrs([_capsule(outputs[0])])
        found: torch.Tensor = output
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
