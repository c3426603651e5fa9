"""Engines by name. An engine's module, and what it needs, is imported only when it is chosen."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from vecmill.engines.base import Engine, EngineClass
from vecmill.engines.providers import installed_wheels, refuse_mixed_wheels
from vecmill.errors import InvalidConfig, MissingExtra, UnsupportedModel
from vecmill.models.encoder import ENCODERS
from vecmill.models.library import LibraryConfig
from vecmill.plan import DEFAULT_ENGINE, EnginePlan

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """Where an engine is, the modules that it needs, and the extra of this distribution that brings them.

    `runs_exported` is whether it runs graphs that were exported elsewhere, `runs_library` whether it runs
    architectures that only transformers knows.
    """

    target: str
    needs: tuple[str, ...] = ()
    extra: str | None = None
    runs_exported: bool = False
    runs_library: bool = False

    @property
    def is_installed(self) -> bool:
        """Whether all that it needs can be imported."""
        return all(find_spec(module) is not None for module in self.needs)


ENGINES: Mapping[str, EngineEntry] = MappingProxyType(
    {
        "fake": EngineEntry("vecmill.engines.fake:FakeEngine", runs_exported=True),
        "neuron": EngineEntry(
            "vecmill.engines.neuron:NeuronEngine", ("torch_neuronx", "optimum", "onnxruntime"), "neuron"
        ),
        "onnx": EngineEntry("vecmill.engines.onnx:OnnxEngine", ("onnxruntime",), "cpu", runs_exported=True),
        "openvino": EngineEntry("vecmill.engines.openvino:OpenVinoEngine", ("openvino",), "openvino"),
        "torch": EngineEntry(
            "vecmill.engines.torch.engine:TorchEngine", ("torch", "transformers"), "torch", runs_library=True
        ),
        "torch-compile": EngineEntry(
            "vecmill.engines.torch.compiled:CompiledTorchEngine", ("torch",), "torch"
        ),
    }
)


def find_engine(name: str) -> EngineClass:
    """The class of engine `name`, imported now.

    Raises `InvalidConfig` for a name that is not in the table, `MissingExtra` where a package is missing or
    broken, or where two wheels of ONNX Runtime were installed over each other.
    """
    entry = ENGINES.get(name)
    if entry is None:
        raise InvalidConfig(
            f"There is no engine named {name!r}. Choose one of: {', '.join(sorted(ENGINES))}."
        )
    if not entry.is_installed:
        missing = ", ".join(module for module in entry.needs if find_spec(module) is None)
        raise MissingExtra(
            f"The {name} engine needs {missing}: install it with pip install 'vecmill[{entry.extra}]'."
        )
    if "onnxruntime" in entry.needs:
        refuse_mixed_wheels(installed_wheels())
    module_name, _, class_name = entry.target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, OSError) as error:  # a shared library that is missing is an OSError
        raise MissingExtra(
            f"The {name} engine is installed, but cannot be imported: {error}. Install it again, with "
            f"pip install --force-reinstall 'vecmill[{entry.extra}]'."
        ) from error
    return cast(EngineClass, getattr(module, class_name))


def default_engine(description: "ModelDescription") -> str:
    """The engine for a model where nobody chooses one.

    Raises `UnsupportedModel` for an architecture that only transformers knows if nothing here can run it.
    """
    if not isinstance(description.encoder, LibraryConfig):
        return DEFAULT_ENGINE
    name = next(name for name, entry in ENGINES.items() if entry.runs_library)
    if not ENGINES[name].is_installed:
        raise UnsupportedModel(
            f"{description.directory}: model_type {description.architecture!r} has no graph here; these "
            f"have: {', '.join(sorted(ENCODERS))}. Others run on the {name} engine, by transformers: "
            f"pip install 'vecmill[{ENGINES[name].extra}]'."
        )
    return name


def load_engine(description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Engine:
    """Import the planned engine and load the model into it.

    Raises as `find_engine` does, `UnsupportedModel` for what the engine does not run, and
    whatever `SetupError` the engine raises.
    """
    engine = find_engine(plan.engine)
    if isinstance(description.encoder, LibraryConfig) and not ENGINES[plan.engine].runs_library:
        raise UnsupportedModel(
            f"{description.directory}: model_type {description.architecture!r} has no graph here, which the "
            f"{plan.engine} engine needs. Use the {default_engine(description)} engine."
        )
    if description.exported_graph is not None and not ENGINES[plan.engine].runs_exported:
        raise UnsupportedModel(
            f"{description.exported_graph} is an exported graph, which the {plan.engine} engine does not "
            "run. Use the onnx engine, or a model directory with safetensors."
        )
    return engine.load(description, plan, cores=cores, cache_dir=cache_dir)
