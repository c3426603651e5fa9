"""Tensors of weights files under other names, in parts, or changed when their rows are read.

`weights` reads them as it reads an open file: they have the methods of safetensors' files and slices.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor of `shape`, whose elements safetensors calls `dtype`.

    `read` returns rows of it, or all of it for `None`. `find_offset` returns the byte at which it begins in
    its file, `None` if no file holds its elements.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[slice | None], Any]
    find_offset: Callable[[], int | None]

    @classmethod
    def of(cls, file: Any, name: str) -> Self:
        """Return the tensor `name` of an open file, without reading it."""
        view = file.get_slice(name)

        def read(rows: slice | None) -> Any:
            return file.get_tensor(name) if rows is None else view[rows]

        return cls(tuple(view.get_shape()), view.get_dtype(), read, lambda: file.find_offset(name))

    def part(self, start: int, stop: int) -> Self:
        """Return the rows `start` to `stop`."""

        def read(rows: slice | None) -> Any:
            first, end, _ = (rows or slice(None)).indices(stop - start)
            return self.read(slice(start + first, start + end))

        return replace(self, shape=(stop - start, *self.shape[1:]), read=read, find_offset=lambda: None)

    def changed(self, change: Callable[[Any, slice], Any]) -> Self:
        """Return the tensor with the rows that `change` makes of those that were read, and their place."""

        def read(rows: slice | None) -> Any:
            return change(self.read(rows), rows or slice(None))

        return replace(self, read=read, find_offset=lambda: None)

    def get_shape(self) -> list[int]:
        """Return the shape."""
        return list(self.shape)

    def get_dtype(self) -> str:
        """Return the type of the elements."""
        return self.dtype

    def __getitem__(self, rows: slice) -> Any:
        """Return `rows`."""
        return self.read(rows)


class ViewedFile:
    """Tensors by the names that they have here."""

    def __init__(self, views: Mapping[str, TensorView]) -> None:
        self._views = views

    def keys(self) -> Iterable[str]:
        """Return the names of the tensors."""
        return list(self._views)

    def get_slice(self, name: str) -> TensorView:
        """Return the tensor `name`, without reading it."""
        return self._views[name]

    def get_tensor(self, name: str) -> Any:
        """Return the tensor `name` as an array."""
        return self._views[name].read(None)

    def find_offset(self, name: str) -> int | None:
        """Return the byte at which the tensor `name` begins in its file, `None` if it is changed."""
        return self._views[name].find_offset()
