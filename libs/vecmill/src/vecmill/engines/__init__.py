"""Engines by name. An engine's module, and what it needs, is imported only when it is chosen."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from vecmill.engines.base import Engine
from vecmill.errors import InvalidConfig

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

ENGINES = {
    "fake": "vecmill.engines.fake:FakeEngine",
    "onnx": "vecmill.engines.onnx:OnnxEngine",
}


class EngineClass(Protocol):
    """What the table's entries name."""

    def load(self, description: "ModelDescription", *, cores: int, cache_dir: Path) -> Engine:
        """Build the engine for a model, to run calls on up to `cores` cores."""
        ...


def load_engine(name: str, description: "ModelDescription", *, cores: int, cache_dir: Path) -> Engine:
    """Import engine `name` and load the model into it.

    Raises `InvalidConfig` for a name that is not in the table, and whatever `SetupError` the engine raises.
    """
    if name not in ENGINES:
        raise InvalidConfig(
            f"There is no engine named {name!r}. Choose one of: {', '.join(sorted(ENGINES))}."
        )
    module_name, _, class_name = ENGINES[name].partition(":")
    engine_class = cast(EngineClass, getattr(importlib.import_module(module_name), class_name))
    return engine_class.load(description, cores=cores, cache_dir=cache_dir)
