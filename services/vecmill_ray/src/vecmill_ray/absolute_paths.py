"""Absolute paths for commands that run on a cluster, whose processes have another working directory."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vecmill.config import MillConfig
from vecmill.models import locate_model
from vecmill.models.location import PairName


def absolute_model(model: str | None) -> str | None:
    """Return `model`, or the absolute path if it names a file or a directory.

    The embedded model and models of a hub keep their names. Of a pair both are made absolute. Raises
    `ModelNotFound` for a file that is not a model.
    """
    if model is None:
        return None
    pair = PairName.parse(model)
    if pair is not None:
        return str(PairName(*(str(absolute_model(each)) for each in (pair.text, pair.image))))
    try:
        path = Path(model).expanduser().absolute()
        exists = path.exists()
    except (OSError, RuntimeError, ValueError):  # too long, an unknown user's home, or a NUL character
        return model
    # The embedded model takes precedence over a directory of the same name.
    if not exists or not path.resolve().is_relative_to(locate_model(model).directory.resolve()):
        return model
    return str(path)


def absolute_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of settings, with absolute paths."""
    return {
        name: value.expanduser().absolute() if isinstance(value, Path) else value
        for name, value in values.items()
    }


def absolute_config(config: MillConfig) -> MillConfig:
    """Return the configuration of a mill with absolute paths."""
    folder = config.cache_dir
    return config if folder is None else replace(config, cache_dir=folder.expanduser().absolute())
