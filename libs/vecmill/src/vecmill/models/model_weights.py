"""Opens the weights of a described model: merged with its adapter, and tied as its class ties them."""

import functools
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.description import ModelDescription
from vecmill.models.merged_weights import open_merged
from vecmill.models.task_adapters import open_beside
from vecmill.models.tied_tensors import Tie
from vecmill.models.weights import Weights


def open_weights(description: ModelDescription, *, adds_products: bool = True) -> Weights:
    """Open the weights of the encoder and the head, merged with those of an adapter, or beside several.

    Without `adds_products` the matrices of an adapter are not added to those of its base. Raises the same
    errors as `Weights.open`.
    """
    paths, asked_by = description.weights_files, _settings(description)
    if description.task_adapters:
        own = {adapter.weights_file for adapter in description.task_adapters.values()}
        rest = (path for path in paths if path not in own)
        modules = description.encoder.adapted_modules
        weights = open_beside(description.task_adapters, *rest, modules=modules, asked_by=asked_by)
    elif description.adapter is None:
        weights = Weights.open(*paths, asked_by=asked_by)
    else:
        rename = description.encoder.rename_tensor
        weights = open_merged(
            description.adapter, *paths, rename=rename, asked_by=asked_by, adds_products=adds_products
        )
    return weights.tied(description.ties, _tied_rows(description))


def tells_ties_apart(description: ModelDescription) -> bool:
    """Return whether the files have two tensors that an earlier version read as one, and that differ.

    Reads headers, and both tensors as far as they are equal. Raises the same errors as `Weights.open`.
    """
    ties = tuple(tie for tie in description.ties if not tie.reads_copies)
    if not ties or description.exported_graph is not None:
        return False
    rows = _tied_rows(description)
    if description.adapter is not None:
        return _tells_any_apart(open_weights(description), ties, rows)
    return _tell_files_apart(tuple(map(_read_state, description.weights_files)), ties, rows)


_FileState = tuple[Path, int, int, int]


def _read_state(path: Path) -> _FileState:
    try:
        found = path.stat()
    except OSError as error:
        raise CorruptModel(f"{path} cannot be read: {error.strerror}.") from error
    return path, found.st_size, found.st_mtime_ns, found.st_ctime_ns


# A start asks several times, and equal tensors are read whole to tell that they are.
@functools.lru_cache(maxsize=64)
def _tell_files_apart(states: tuple[_FileState, ...], ties: tuple[Tie, ...], rows: tuple[int, ...]) -> bool:
    return _tells_any_apart(Weights.open(*(path for path, *_ in states)), ties, rows)


def _tells_any_apart(weights: Weights, ties: tuple[Tie, ...], rows: tuple[int, ...]) -> bool:
    return any(weights.with_prefix(tie.prefix).tied((), rows).tells_apart(tie) for tie in ties)


def _tied_rows(description: ModelDescription) -> tuple[int, ...]:
    """Return the rows that the head reads of tensors that may be tied, empty for all."""
    return () if description.head is None else description.head.token_ids


def _settings(description: ModelDescription) -> dict[str, Any]:
    """Return the settings that determine the shapes of tensors, by their keys.

    Those of an object in `config.json` have its name before theirs: `text_config.hidden_size`. A size that an
    architecture rounds is as it is read.
    """
    config, encoder = description.config, description.encoder
    read = {field.name: getattr(encoder, field.name) for field in fields(encoder) if field.name in config}
    labels = {} if description.head is None else {"num_labels or id2label": len(description.head.labels)}
    parts = {
        f"{part}.{key}": value
        for part, settings in config.items()
        if isinstance(settings, Mapping)
        for key, value in settings.items()
    }
    return {**config, **read, **parts, **labels}
