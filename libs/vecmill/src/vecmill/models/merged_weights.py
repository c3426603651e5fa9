"""Merges a LoRA adapter into the weights of its base, one tensor at a time, when the tensor is read.

A matrix W of the base becomes W + s B A, and a table of embeddings W + s (B A)^T, where s is the scaling of
the module (`models.adapters`). Whole tensors take the place of those of the base. So memory holds one merged
tensor at a time.

The adapter has the names that its class in transformers has. They may begin with the name of the encoder, or
lack it. Where transformers renames or splits the published tensors, the base is read by the names of the
class too (`EncoderConfig.rename_tensor`).

Sources: Hu et al., "LoRA" (2021), section 4.1; peft 0.21, `tuners/lora/layer.py`, `utils/save_and_load.py`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.adapters import ADAPTER_CONFIG, Adapter, list_tensors
from vecmill.models.tensor_views import TensorView, ViewedFile
from vecmill.models.weights import FLOATS, Weights, open_weights_file
from vecmill.values.aliases import FloatArray

_PARTS = re.compile(r"(?P<module>.+)\.(?:lora_(?P<part>[AB])\.weight|lora_embedding_(?P<row>[AB]))")

Rename = Callable[[str], tuple[str, ...]]


def keep_name(name: str) -> tuple[str, ...]:
    """Return the name of a tensor that its class does not rename."""
    return (name,)


@dataclass(frozen=True, slots=True)
class _Product:
    """The product of two matrices that is added to the tensor `stored` of the base."""

    stored: str
    first: Any  # slices of a file, read when they are indexed
    second: Any
    scaling: float
    is_table: bool

    def add_to(self, values: FloatArray, rows: slice) -> FloatArray:
        """Return `values`, rows of the tensor, with the same rows of the product added."""
        low, high = _read(self.first), _read(self.second)
        change = low[:, rows].T @ high.T if self.is_table else high[rows] @ low
        merged: FloatArray = np.asarray(values, np.float32) + np.float32(self.scaling) * change
        return merged


def _read(view: Any) -> FloatArray:
    import ml_dtypes  # noqa: F401  # registers bfloat16 with numpy

    return np.asarray(view[:], np.float32)


def _merge(views: Mapping[str, TensorView], products: Mapping[str, _Product]) -> ViewedFile:
    """Return tensors with the products added to them."""
    merged = {name: view.changed(products[name].add_to) for name, view in views.items() if name in products}
    return ViewedFile({**views, **merged})


def _view(file: Any, names: Mapping[str, str]) -> dict[str, TensorView]:
    """Return tensors of a file by other names; `names` has the names in the file by those."""
    return {name: TensorView.of(file, stored) for name, stored in names.items()}


def _rename(file: Any, rename: Rename) -> ViewedFile:
    """Return the tensors of a file, or equal parts of them, by the names of a class."""
    views: dict[str, TensorView] = {}
    for stored in list(file.keys()):
        names, whole = rename(stored), TensorView.of(file, stored)
        if len(names) == 1:
            views[names[0]] = whole
            continue
        rows = whole.shape[0] // len(names)
        for place, name in enumerate(names):
            views[name] = whole.part(place * rows, (place + 1) * rows)
    return ViewedFile(views)


def _open_base(paths: Sequence[Path], adapter: Adapter, rename: Rename) -> dict[Path, Any]:
    """Open the files of the base, by the names that the modules of the adapter have."""
    files = {path: open_weights_file(path) for path in paths}
    stored = {name for file in files.values() for name in list(file.keys())}
    others = {other for name in stored for other in rename(name)} - stored
    if not others:
        return files
    adapted = list_tensors(open_weights_file(adapter.weights_file), adapter.weights_file)
    matches = (_PARTS.fullmatch(name) for name in adapted)
    names = {
        f"{found['module']}.weight" if found else name for name, found in zip(adapted, matches, strict=True)
    }
    if others.isdisjoint(names | {name.partition(".")[2] for name in names}):
        return files
    return {path: _rename(file, rename) for path, file in files.items()}


def open_merged(
    adapter: Adapter,
    *paths: Path,
    rename: Rename = keep_name,
    asked_by: Mapping[str, Any] = MappingProxyType({}),
    adds_products: bool = True,
) -> Weights:
    """Open the weights files of the base with the adapter merged in.

    Without `adds_products` only the whole tensors of the adapter are, which replace those of the base.

    `rename` returns the names that the class of the adapter has for a tensor, as
    `EncoderConfig.rename_tensor` does. If the adapter uses them, all tensors have these names. Reads the
    headers of all files. Raises the same errors as `Weights.open`, and `CorruptModel` if a tensor of the
    adapter lacks its counterpart, or has no tensor of this shape in the base.
    """
    files = _open_base(paths, adapter, rename)
    merging = _Merging(adapter, open_weights_file(adapter.weights_file), files)
    products, saved = merging.pair()
    products = products if adds_products else {}
    merged = {
        path: _merge(_view(file, {name: name for name in list(file.keys())}), products)
        for path, file in files.items()
    }
    # The last file of a name is used, so these tensors replace those of the base.
    merged[adapter.weights_file] = _merge(_view(merging.file, saved), products)
    return Weights(merged, asked_by)


def list_added(adapter: Adapter, *paths: Path, rename: Rename = keep_name) -> list[str]:
    """Return the names of whole tensors that the base does not have. Raises the errors of `open_merged`."""
    files = _open_base(paths, adapter, rename)
    merging = _Merging(adapter, open_weights_file(adapter.weights_file), files)
    merging.pair()
    return merging.added


def touches_embeddings(adapter: Adapter) -> bool:
    """Return whether the adapter changes a table of embeddings."""
    names = open_weights_file(adapter.weights_file).keys()
    return any("lora_embedding_" in name or re.search(r"embed(?!ding_[AB])", name) for name in names)


class _Merging:
    """The search for the tensors of the base that the tensors of an adapter belong to."""

    def __init__(self, adapter: Adapter, file: Any, base: Mapping[Path, Any]) -> None:
        self.file = file
        self.added: list[str] = []  # tensors of modules that the base does not have
        self._adapter = adapter
        self._saved = frozenset(adapter.saved)
        self._base = {name: one for one in base.values() for name in list(one.keys())}
        self._ends: dict[str, list[str]] = {}
        for name in self._base:
            self._ends.setdefault(name.partition(".")[2], []).append(name)

    def pair(self) -> tuple[dict[str, _Product], dict[str, str]]:
        """Return the products by the names in the base, and the names of whole tensors by those."""
        names = list_tensors(self.file, self._adapter.weights_file)
        if not names:
            raise self._corrupt("has no tensors")
        modules: dict[str, bool] = {}
        saved: dict[str, str] = {}
        for name, own in names.items():
            self._check_dtype(own)
            found = _PARTS.fullmatch(name)
            if found is None:
                stored = self._find_saved(name)
                if stored in saved:
                    raise self._corrupt(f"has the tensor {stored!r} of the base twice")
                saved[stored] = own
            else:
                modules[found["module"]] = found["row"] is not None
        products: dict[str, _Product] = {}
        for module, is_table in modules.items():
            product = self._find_product(module, names, saved, is_table=is_table)
            if product.stored in products:
                raise self._corrupt(f"adapts the tensor {product.stored!r} of the base twice")
            products[product.stored] = product
        return products, saved

    def _check_dtype(self, own: str) -> None:
        dtype = self.file.get_slice(own).get_dtype()
        if dtype not in FLOATS:
            supported = ", ".join(sorted(FLOATS))
            raise UnsupportedModel(
                f"{self._adapter.weights_file}: tensor {own!r} holds {dtype}; supported are {supported}."
            )

    def _find_product(
        self, module: str, names: Mapping[str, str], saved: Mapping[str, str], *, is_table: bool
    ) -> _Product:
        parts = ("lora_embedding_A", "lora_embedding_B") if is_table else ("lora_A.weight", "lora_B.weight")
        for part in parts:
            if f"{module}.{part}" not in names:
                raise self._corrupt(f"has no tensor {f'{module}.{part}'!r}, but its counterpart")
        low, high = (self.file.get_slice(names[f"{module}.{part}"]) for part in parts)
        stored = self._find_stored(f"{module}.weight")
        if stored is None:
            raise self._corrupt(f"adapts the module {module!r}, which the base does not have")
        # A table with rows for added tokens is saved whole, and adapted too.
        whole = (
            self.file.get_slice(saved[stored]) if stored in saved else self._base[stored].get_slice(stored)
        )
        shape, rank = tuple(whole.get_shape()), self._adapter.rank_of(module)
        ends = shape[::-1] if is_table else shape
        expected = [(rank, *ends[1:]), (*ends[:1], rank)]
        found = [tuple(low.get_shape()), tuple(high.get_shape())]
        if len(shape) != 2 or found != expected:
            raise self._corrupt(
                f"has matrices of the shapes {found[0]} and {found[1]} for the module {module!r}, whose "
                f"weight in the base has the shape {shape}; {ADAPTER_CONFIG} gives the rank {rank}"
            )
        return _Product(stored, low, high, self._adapter.scaling_of(module), is_table)

    def _find_saved(self, name: str) -> str:
        """Return the name in the base of a whole tensor; its own name if the adapter adds its module."""
        plain = name.replace(".base_layer.", ".")
        stored = self._find_stored(plain)
        if stored is not None:
            return stored
        if self._saved.isdisjoint(plain.split(".")):
            raise self._corrupt(f"has the tensor {name!r}, which the base does not have")
        self.added.append(plain)
        return plain

    def _find_stored(self, name: str) -> str | None:
        """Return the tensor of the base; one of the two names may begin with the name of the encoder."""
        candidates = [name] if name in self._base else self._ends.get(name, [])
        if not candidates:
            rest = name.partition(".")[2]
            candidates = [rest] if rest in self._base else []
        if len(candidates) > 1:
            raise self._corrupt(f"adapts {name!r}, which the base has more than once")
        return candidates[0] if candidates else None

    def _corrupt(self, what: str) -> CorruptModel:
        return CorruptModel(f"{self._adapter.weights_file} {what}.")
