"""The table of engines by name.

An engine's module and packages are imported only when the engine is chosen.
"""

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vecmill.architectures.registry import configured_architectures
from vecmill.engines.base import Engine, EngineClass
from vecmill.engines.providers import installed_wheels, refuse_mixed_wheels
from vecmill.errors import InvalidConfig, MissingExtra, UnsupportedModel
from vecmill.models.directory import load_failures
from vecmill.models.encoder_config import TransformersConfig
from vecmill.values.engine_plan import DEFAULT_ENGINE, EnginePlan
from vecmill.values.messages import pip_command, show

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """The import path of an engine, the modules that it needs, and the extra that installs these modules.

    `runs_exported`: whether the engine runs graphs that another program exported. `runs_transformers`:
    whether the engine runs architectures that only transformers implements. `reads_weights`: whether outputs
    depend on the model's weights.
    """

    target: str
    needs: tuple[str, ...] = ()
    extra: str | None = None
    runs_exported: bool = False
    runs_transformers: bool = False
    reads_weights: bool = True

    @property
    def is_installed(self) -> bool:
        """Whether all needed modules can be imported."""
        return all(find_spec(module) is not None for module in self.needs)

    @property
    def package(self) -> str:
        """The requirement that installs the needed modules, such as `vecmill[openvino]`."""
        return f"vecmill[{self.extra}]"


ENGINES: Mapping[str, EngineEntry] = {
    "fake": EngineEntry("vecmill.engines.fake:FakeEngine", runs_exported=True, reads_weights=False),
    "neuron": EngineEntry(
        "vecmill.engines.neuron:NeuronEngine", ("torch_neuronx", "optimum", "onnxruntime"), "neuron"
    ),
    "onnx": EngineEntry(
        "vecmill.engines.onnx.engine:OnnxEngine", ("onnxruntime",), "cpu", runs_exported=True
    ),
    "openvino": EngineEntry("vecmill.engines.openvino:OpenVinoEngine", ("openvino",), "openvino"),
    "torch": EngineEntry(
        "vecmill.engines.torch.engine:TorchEngine",
        ("torch", "transformers"),
        "torch",
        runs_transformers=True,
    ),
    "torch-compile": EngineEntry("vecmill.engines.torch.compiled:CompiledTorchEngine", ("torch",), "torch"),
}


def list_engine_names() -> list[str]:
    """Return the names of the engines that compute models: not that of the engine for tests."""
    return [name for name, entry in ENGINES.items() if entry.reads_weights]


def find_engine(name: str) -> EngineClass:
    """Import and return the class of engine `name`. Switches off the telemetry of ONNX Runtime.

    Raises `InvalidConfig` for a name that is not in the table, and `MissingExtra` if a package is missing or
    broken or if two wheels of ONNX Runtime were installed over each other.
    """
    entry = ENGINES.get(name)
    if entry is None:
        raise InvalidConfig(
            f"There is no engine named {name!r}. Choose one of: {', '.join(list_engine_names())}."
        )
    if not entry.is_installed:
        missing = ", ".join(module for module in entry.needs if find_spec(module) is None)
        raise MissingExtra(
            f"The {name} engine needs {missing}: install it with {pip_command('install', entry.package)}."
        )
    if "onnxruntime" in entry.needs:
        refuse_mixed_wheels(installed_wheels())
    # By default ONNX Runtime sends telemetry, and keeps an identifier of the machine in the cache folder.
    os.putenv("ORT_DISABLE_TELEMETRY", "1")
    module_name, _, class_name = entry.target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, OSError) as error:  # a shared library that is missing is an OSError
        # Not `--force-reinstall vecmill[...]`, which reinstalls vecmill too, also where it is a clone's.
        owners = packages_distributions()
        broken = {owner for module in entry.needs for owner in owners.get(module, ())}
        raise MissingExtra(
            f"The {name} engine is installed but cannot be imported: {error}. Reinstall it: "
            f"{pip_command('uninstall', *sorted(broken))}, then {pip_command('install', entry.package)}."
        ) from error
    return cast(EngineClass, getattr(module, class_name))


def default_engine(description: "ModelDescription") -> str:
    """Return the name of the engine to use for a model if no engine is configured.

    Raises `UnsupportedModel` if only transformers implements the architecture and the torch engine is not
    installed.
    """
    if not isinstance(description.encoder, TransformersConfig):
        return DEFAULT_ENGINE
    name = next(name for name, entry in ENGINES.items() if entry.runs_transformers)
    if not ENGINES[name].is_installed:
        raise UnsupportedModel(
            f"{description.directory}: vecmill has no graph for model_type {show(description.architecture)}. "
            f"It has graphs for: {', '.join(configured_architectures())}. The {name} engine runs other "
            f"architectures through transformers: {pip_command('install', ENGINES[name].package)}."
        )
    return name


def load_engine(description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Engine:
    """Import the planned engine and load the model into it.

    Raises the same errors as `find_engine`, `UnsupportedModel` for a model that the engine does not run, and
    any `SetupError` that the engine raises; `LoadFailed` for anything else that goes wrong.
    """
    engine = find_engine(plan.engine)
    if isinstance(description.encoder, TransformersConfig) and not ENGINES[plan.engine].runs_transformers:
        raise UnsupportedModel(
            f"{description.directory}: vecmill has no graph for model_type {show(description.architecture)}, "
            f"and the {plan.engine} engine needs one. Use the {default_engine(description)} engine."
        )
    if description.exported_graph is not None and not ENGINES[plan.engine].runs_exported:
        raise UnsupportedModel(
            f"The {plan.engine} engine does not run exported graphs such as {description.exported_graph}. "
            "Use the onnx engine, or a model directory with safetensors."
        )
    with load_failures(description.directory):
        return engine.load(description, plan, cores=cores, cache_dir=cache_dir)


def load_exact_engine(description: "ModelDescription", *, cores: int) -> Engine:
    """Load a model in fp32 for comparisons, without preparing it: slow calls, nothing written, little memory.

    Raises the same errors as `load_engine`.
    """
    find_engine(DEFAULT_ENGINE)
    from vecmill.engines.onnx.engine import OnnxEngine

    with load_failures(description.directory):
        return OnnxEngine.load_in_place(description, cores=cores)
