"""The torch-compile engine: one compiled program for all shapes, compiled before the first request.

AOTInductor, the ahead-of-time compiler behind `torch.compile`, writes the program as a package
(`program.pt2`): machine code, and weights in the layout of its kernels. The prepared folder
(`engines.prepared`) keeps the package, so only the first start of a model compiles, for half a minute or
more, and later starts need no compiler. Calls run without Python's lock (`native`). As many calls run at once
as there are cores, and all calls share one copy of the weights.

The program accepts any input sizes except 0 and 1, for which torch would compile separate programs: every
size is at least 2 (`ShapeRounding.min_size`).
"""

import json
import logging
import shutil
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from vecmill.engines.base import EngineCapabilities
from vecmill.engines.mapped_model import MappedModel
from vecmill.engines.prepared import PreparedModel, prepare_model
from vecmill.engines.torch.devices import DTYPES, choose_devices, find_devices, name_devices, precisions_of
from vecmill.engines.torch.engine import TorchEngine, choose_rounding, describe_engine
from vecmill.engines.torch.native import NativeProgram, extract_library
from vecmill.engines.torch.replica import IndexedProgram, Outputs, Program, Replica, probe_device
from vecmill.errors import InvalidConfig, MissingExtra, UnsupportedModel
from vecmill.hardware.processor import processor_name
from vecmill.models import prepared_name
from vecmill.models.weights import fp32_bytes
from vecmill.values.batch import Batch
from vecmill.values.engine_plan import EngineInfo, EnginePlan, Precision

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

logger = logging.getLogger(__name__)

PROGRAM_FILE = "program.pt2"
LIBRARY_FILE = "program.so"  # the part of the package that the CPU needs
INPUTS_FILE = "inputs.json"

_MIN_SIZE = 2
_MAX_SIZE = 2**24

# Example sizes of the axes of inputs (`graphs.batch_layout`). They differ from each other and from all sizes
# of a model, so that torch cannot equate two sizes.
_EXAMPLE_SIZES: Mapping[str, int] = {
    "tokens": 47,
    "texts": 11,
    "longest": 13,
    "head_tokens": 17,
    "rows": 19,
    "width": 23,
}

_OPTIONS: Mapping[str, Any] = {
    # Weights become constants in the layout of the kernels.
    "freezing": True,
    # The number of threads is the caller's (`use_threads`), not that of the compiling process.
    "cpp.dynamic_threads": True,
    # Worker processes would outlive the compilation.
    "compile_threads": 1,
}


class CompiledTorchEngine(TorchEngine):
    """A model in compiled torch, on the CPU or on accelerators of NVIDIA or AMD."""

    name = "torch-compile"

    def __init__(
        self,
        info: EngineInfo,
        replicas: list[Replica],
        *,
        prepared: PreparedModel,
        mapped: MappedModel[Replica] | None,
    ) -> None:
        """`mapped` has the replica on the CPU, which maps the prepared files. Accelerators copy them."""
        super().__init__(info, replicas, shared=mapped is not None)
        self._prepared = prepared
        self._mapped = mapped

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Open the compiled model; compile it first if it is missing.

        Blocks; compilation takes half a minute.

        Raises the same errors as `TorchEngine.load`, and `MissingExtra` if there is no C++ compiler.
        """
        devices = choose_devices(plan.device)
        if devices[0].type == "mps":
            raise InvalidConfig(
                "The torch-compile engine does not compute on mps. Use the torch engine there."
            )
        info = describe_engine(cls.name, description, plan, devices, cores=cores)
        precision = Precision(info.precision)
        prepared = prepare_model(
            cache_dir,
            _name(description, precision, devices[0], cache_dir),
            lambda folder: _fill(description, precision, devices[0], folder),
            estimate_bytes=lambda: 3 * fp32_bytes(description.weights_files),
        )

        def open_replica(device: torch.device) -> Replica:
            program = _open(prepared.folder, description, plan, device, runners=cores)
            return Replica(name_devices((device,)), program, lambda: probe_device(device))

        with prepared.closed_on_error():
            if devices[0].type == "cpu":
                mapped = MappedModel(prepared, lambda: open_replica(devices[0]))
                return cls(info, [mapped.sessions], prepared=prepared, mapped=mapped)
            replicas = [open_replica(device) for device in devices]
            return cls(info, replicas, prepared=prepared, mapped=None)

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        """Return the devices that torch finds and can compile for, and their precisions."""
        return EngineCapabilities(
            {device: precisions_of(device) for device in find_devices() if device != "mps"}
        )

    def renew(self) -> None:
        """Open the program again on the CPU, where as many calls run at once as there are cores.

        A hung call on a device keeps the device.
        """
        if self._mapped is not None:
            self._mapped.renew()
            self._shared = self._mapped.sessions

    def close(self) -> None:
        """Release the weights after the running calls, and a temporary prepared folder."""
        super().close()
        self._mapped = None
        self._prepared.close()

    def _compute(self, batch: Batch) -> Outputs:
        mapped = self._mapped
        if mapped is None:
            return super()._compute(batch)
        outputs = mapped.run(lambda replica: replica.run(batch))
        if self._mapped is not None:
            self._shared = mapped.sessions  # the files may have been opened again
        return outputs


def _name(
    description: "ModelDescription", precision: Precision, device: torch.device, cache_dir: Path
) -> str:
    machine = (
        processor_name() if device.type == "cpu" else torch.cuda.get_device_name(device).replace(" ", "-")
    )
    return f"{prepared_name(description, cache_dir)}-torch-{torch.__version__}-{precision}-{machine}"


def _fill(description: "ModelDescription", precision: Precision, device: torch.device, folder: Path) -> None:
    """Compile the program of a model to `folder`."""
    from vecmill.architectures.build import build_graph
    from vecmill.engines.torch.program import make_program
    from vecmill.graphs.batch_layout import IndexedLayout
    from vecmill.graphs.steps import list_steps

    _require_compiler()
    logger.info("Compiling %s in %s; this happens once.", description.name, precision)
    steps = list_steps(build_graph(description, IndexedLayout))
    program = make_program(steps, dtype=DTYPES[precision], device=device)
    compile_program(program, steps.inputs.values(), device, folder / PROGRAM_FILE)
    if device.type == "cpu":
        extract_library(folder / PROGRAM_FILE, folder / LIBRARY_FILE)
        (folder / PROGRAM_FILE).unlink()
    (folder / INPUTS_FILE).write_text(json.dumps(list(steps.inputs)), encoding="utf-8")


def compile_program(
    program: torch.nn.Module, inputs: Collection[tuple[str, ...]], device: torch.device, path: Path
) -> None:
    """Compile `program` for all sizes of the axes of its `inputs` to the package `path`."""
    sizes = {axis: torch.export.Dim(axis, min=_MIN_SIZE, max=_MAX_SIZE) for axis in _EXAMPLE_SIZES}
    example = tuple(
        torch.ones([_EXAMPLE_SIZES[axis] for axis in axes], dtype=torch.int64, device=device)
        for axes in inputs
    )
    shapes = tuple({place: sizes[axis] for place, axis in enumerate(axes)} for axes in inputs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch's own code
        try:
            exported = torch.export.export(program, example, dynamic_shapes=shapes)
            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(path), inductor_configs=dict(_OPTIONS)
            )
        except Exception as error:
            raise UnsupportedModel(
                f"torch {torch.__version__} cannot compile this model ({type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else ''}). Use the torch engine."
            ) from error


def _require_compiler() -> None:
    from torch._inductor import cpp_builder, exc

    try:
        compiler = cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        compiler = None
    if compiler is None or shutil.which(compiler) is None:
        raise MissingExtra(
            "The torch-compile engine found no C++ compiler. Install a compiler such as g++, set the "
            "environment variable CXX to its path, or use the torch engine, which needs no compiler."
        )


def _open(
    folder: Path, description: "ModelDescription", plan: EnginePlan, device: torch.device, *, runners: int
) -> IndexedProgram:
    from torch._inductor.package import load_package

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own code
        program: Program
        if device.type == "cpu":
            program = NativeProgram(folder / LIBRARY_FILE, runners)
        else:
            program = _unpack_inputs(load_package(str(folder / PROGRAM_FILE), device_index=device.index))
    return IndexedProgram(
        program,
        json.loads((folder / INPUTS_FILE).read_text(encoding="utf-8")),
        device,
        output_shape=description.output_shape,
        token_count=description.token_count,
        shares_prefixes=description.shares_prefixes,
        rounding=choose_rounding(plan, device, min_size=_MIN_SIZE),
    )


def _unpack_inputs(package: Callable[..., Any]) -> Program:
    def call(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        found = package(*tensors)
        # Packages of older releases return the only output itself.
        return (found,) if isinstance(found, torch.Tensor) else tuple(found)

    return call
