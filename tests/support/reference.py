"""Models of sentence-transformers, the references for every row; what they answer is recorded."""

import pydoc
import re
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from support.references import Reference, digest_directory

_CALLS = ("encode", "encode_query", "encode_document", "predict", "rank", "similarity")
_SETTINGS = ("max_seq_length",)


class Numbers(npt.NDArray[Any]):
    """An array that stands for a tensor."""

    def numpy(self) -> npt.NDArray[Any]:
        return np.asarray(self)


class LibraryModel(Reference):
    """A model whose calls are recorded by their arguments. Tensors are arrays, and none is sparse.

    An argument "torch.nn..." stands for a module of that class.
    """

    def __getattr__(self, name: str) -> Any:
        if name in _CALLS:
            return partial(self._call, name)
        if name in _SETTINGS:
            return self.ask([name], lambda model: getattr(model, name))
        return super().__getattr__(name)

    def float(self) -> "LibraryModel":
        """It is in fp32 already."""
        return self

    def _call(self, name: str, *given: Any, **options: Any) -> Any:
        answer = self.ask([name, list(given), options], lambda model: _call(model, name, given, options))
        if "refused" in answer:
            raise ValueError(answer["refused"])
        return _as_numbers(answer["given"])


def load_reference(directory: Path, class_name: str = "SentenceTransformer", **options: Any) -> LibraryModel:
    """The model at `directory` in fp32 on the CPU."""
    return LibraryModel(
        lambda: load_library_model(directory, class_name, options),
        f"{class_name} {sorted(options.items())} {digest_directory(directory)}",
    )


def load_library_model(directory: Path, class_name: str, options: Mapping[str, Any]) -> Any:
    """The model itself, as `load_reference` loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import sentence_transformers
        from transformers.utils import logging

        import support.own_code_models  # noqa: F401 - it tells transformers of its classes

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        library = getattr(sentence_transformers, class_name)
        return library(str(directory), device="cpu", **_make_modules(options)).float()


def _call(model: Any, name: str, given: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    arguments = [_as_tensors(one) for one in given] if name == "similarity" else given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return {"given": _as_arrays(getattr(model, name)(*arguments, **_make_modules(options)))}
        except ValueError as error:
            return {"refused": str(error)}


def _make_modules(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: pydoc.locate(value)() if re.match(r"torch\.nn\.", str(value)) else value  # type: ignore[operator]
        for key, value in options.items()
    }


def _as_tensors(value: Any) -> Any:
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    return [_as_tensors(one) for one in value]


def _as_arrays(value: Any) -> Any:
    import torch

    match value:
        case torch.Tensor():
            return (value.to_dense() if value.is_sparse else value).detach().numpy()
        case list():
            return [_as_arrays(one) for one in value]
        case _:
            return value


def _as_numbers(value: Any) -> Any:
    match value:
        case np.ndarray():
            return value.view(Numbers)
        case list():
            return [_as_numbers(one) for one in value]
        case _:
            return value
