"""The OpenVINO engine, on the CPU, in fp32, and in bf16 and int8 on processors that multiply them natively.

OpenVINO runs the graph with an `IndexedLayout`. It compiles kernels for each new shape, so the first call
of a shape takes some milliseconds longer, and it keeps about half a megabyte for each shape and stream. So
lengths are rounded up to multiples of 16, and positions, which are the rows of the linear layers, to
multiples of 32. Small sizes are rounded to multiples of 8 only. Against multiples of 8 everywhere, 32 clients
get 7 to 10% more texts a second in bf16, and the process takes 90 MB less.

There is one compiled model for each lane width. A compiled model has one *stream* for each call that fits on
the cores at once. The streams share one packed copy of the weights. Calls go through OpenVINO's own queue to
any free stream. If calls ran on the caller's thread, OpenVINO would bind each thread to a stream at its first
call, and might bind two threads to the same stream.

An int8 model is a graph with int8 weights (`quantization.rewriting`). OpenVINO quantises the activations,
and computes all other operators in bf16 on processors with native bf16. The linear layers that would lose the
most accuracy in int8 keep their weights (`engines.openvino_int8`).

Packing is quick, and OpenVINO cannot export packed weights. So the prepared folder (`engines.prepared`) holds
the graph without packed weights.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vecmill.engines.base import Engine, EngineCapabilities, choose_precision, warm_engine
from vecmill.engines.base_weights import share_base_weights
from vecmill.engines.mapped_model import MappedModel
from vecmill.engines.openvino_telemetry import no_openvino_telemetry
from vecmill.engines.prepared import MODEL_FILE, PreparedModel, prepare_model
from vecmill.engines.session_calls import OutputNames, make_embeddings, trim_outputs
from vecmill.errors import InferenceFailed, InvalidConfig, UnsupportedModel, one_line
from vecmill.hardware.cores import lane_widths
from vecmill.hardware.processor import multiplies_bytes, processor_name
from vecmill.models import prepared_name
from vecmill.models.weights import fp32_bytes
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings, Output
from vecmill.values.engine_plan import CostModel, EngineInfo, EnginePlan, Precision
from vecmill.values.positions import BatchShape, Positions, index_batch, refuse_unknown_tokens

with no_openvino_telemetry():
    import openvino

if TYPE_CHECKING:
    from vecmill.engines.openvino_int8 import OpenFolder
    from vecmill.models import ModelDescription

_CPU = "CPU"
_LENGTH_MULTIPLES = (16, 8, 1)
_POSITIONS_PER_LENGTH = 2  # positions are rounded to so many times the multiple of lengths
# Sizes up to this are rounded to a smaller multiple, since padding would be a large part of such a call.
_SMALL_SIZE, _SMALL_MULTIPLE = 32, 8
# Of each kind of kernel in each stream. With 200, a server in fp32 took 850 MB after two minutes of mixed
# texts and went on growing, and computed as many tokens a second.
_SHAPES_KEPT = 20
_TYPE_NAMES: Mapping[Precision, str] = {Precision.FP32: "f32", Precision.BF16: "bf16"}
# Activations that share one quantisation scale: 64 are no more accurate, 256 are less accurate.
_QUANTIZATION_GROUP = 128


class OpenVinoEngine:
    """A model in OpenVINO, with one compiled model for each lane width. `compile_widths` compiles all."""

    def __init__(
        self,
        info: EngineInfo,
        prepared: PreparedModel,
        compile_widths: Callable[[], dict[int, "CompiledWidth"]],
        *,
        token_count: int,
        length_multiple: int,
        shares_prefixes: bool,
    ) -> None:
        self.info = info
        self._shares_prefixes = shares_prefixes
        self._mapped = MappedModel(prepared, compile_widths)
        self._token_count = token_count
        self._multiple = length_multiple

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Compile the prepared model; prepare it first if it is missing. Blocks for about a second.

        Raises `CorruptModel` if weights are missing, broken or of unexpected shapes, `InvalidConfig` for a
        precision or device that is not available, `UnsupportedModel` if OpenVINO cannot compile the graph.
        """
        if plan.device not in (None, "cpu"):
            raise InvalidConfig(f"The openvino engine computes on cpu, not on {plan.device}.")
        core = openvino.Core()
        precision = choose_precision(plan, _offered(core))

        def open_folder(model: "ModelDescription", folder: Path, precision: Precision) -> Engine:
            trial = replace(plan, precision=precision, lane_widths=(cores,))
            return cls._open(model, trial, PreparedModel(folder), core, cores)

        prepared = _prepare(description, precision, cache_dir, open_folder)
        with prepared.closed_on_error():
            return cls._open(description, replace(plan, precision=precision), prepared, core, cores)

    @classmethod
    def _open(
        cls,
        description: "ModelDescription",
        plan: EnginePlan,
        prepared: PreparedModel,
        core: "openvino.Core",
        cores: int,
    ) -> Self:
        """Compile the graph of `prepared`. `plan` has a precision."""
        # Each width has packed weights of its own.
        precision, widths = plan.precision, lane_widths(plan.lane_widths, cores, has_middle=False)
        assert precision is not None
        info = EngineInfo(
            name="openvino",
            precision=precision,
            device="cpu",
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=widths,
            output_shape=description.output_shape,
            normalizes=description.normalizes_output,
            batch_tokens=plan.max_batch_tokens,
            shares_prefixes=description.shares_prefixes,
        )
        return cls(
            info,
            prepared,
            lambda: _compile_widths(core, prepared.path, precision, widths, cores),
            token_count=description.token_count,
            length_multiple=plan.length_multiple or _LENGTH_MULTIPLES[0],
            shares_prefixes=description.shares_prefixes,
        )

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        """Return the precisions of the CPU."""
        return EngineCapabilities({"cpu": _offered(openvino.Core())}, _LENGTH_MULTIPLES)

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Run batches of a few sizes in every width, and return the fitted cost of the narrowest."""
        return warm_engine(self, texts)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Compute embeddings of `info.output_shape`.

        Raises `InferenceFailed` if OpenVINO raises, and `DeviceLost` if the prepared files were changed and
        cannot be opened again.
        """
        if width not in self._mapped.sessions:
            raise InferenceFailed(f"The engine has no compiled model for calls on {width} cores.")
        described = f"{len(batch)} texts with {len(batch.token_ids)} tokens in total"
        try:
            refuse_unknown_tokens(batch, self._token_count)
        except ValueError as error:
            raise InferenceFailed(f"A token of {described} is not in the model's vocabulary.") from error
        positions = Positions.of(batch, shares_prefixes=self._shares_prefixes)
        shape = _round_shape(BatchShape.of(batch, positions), self._multiple)
        try:
            outputs = self._mapped.run(lambda models: models[width].compute(batch, positions, shape))
        except RuntimeError as error:
            raise InferenceFailed(f"OpenVINO failed on {described}: {type(error).__name__}.") from error
        trimmed = trim_outputs(outputs, batch, self.info.output_shape)
        computed_tokens = shape.texts * shape.longest
        return make_embeddings(self.info, trimmed, batch, computed_tokens=computed_tokens)

    def renew(self) -> None:
        """Compile the model again, since a hung call keeps a stream of its compiled model busy.

        Blocks for about a second, and takes the memory of another copy of the packed weights until the hung
        call returns. Raises `UnsupportedModel` if OpenVINO cannot compile the graph.
        """
        self._mapped.renew()

    def close(self) -> None:
        """Release the compiled models after the running calls."""
        self._mapped.sessions.clear()
        self._mapped.prepared.close()


class CompiledWidth:
    """A model compiled for calls on `width` threads; as many calls run at once as fit on `cores` cores."""

    def __init__(
        self,
        core: "openvino.Core",
        model: "openvino.Model",
        precision: Precision,
        width: int,
        cores: int,
    ) -> None:
        streams = max(1, cores // width)
        settings = {
            "INFERENCE_PRECISION_HINT": _TYPE_NAMES[_computed_in(core, precision)],
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": streams * width,
            # Threads that are not pinned leave a busy core to other processes.
            "ENABLE_CPU_PINNING": False,
            "CPU_RUNTIME_CACHE_CAPACITY": _SHAPES_KEPT,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": _QUANTIZATION_GROUP if precision is Precision.INT8 else 0,
        }
        self._model = core.compile_model(model, _CPU, settings)
        self._inputs = [found.any_name for found in self._model.inputs]
        # A tensor may have several names.
        names = [
            next((str(output) for output in Output if output in found.names), found.any_name)
            for found in self._model.outputs
        ]
        self._places = {name: place for place, name in enumerate(names)}
        self._outputs = OutputNames(names)
        self._idle: deque[Any] = deque()  # idle requests; the rightmost was used last, and its memory is warm

    def compute(self, batch: Batch, positions: Positions, shape: BatchShape) -> list[Any]:
        """Compute the outputs for `batch` with inputs of `shape`. Raises `RuntimeError`."""
        request = self._take()
        # The request reads the arrays without a copy, so the arrays must outlive the call.
        feed = index_batch(batch, positions, shape, self._inputs)
        request.start_async(feed, share_inputs=True)
        request.wait()
        tensors = request.output_tensors
        outputs = [np.array(tensors[self._places[name]].data) for name in self._outputs.of(batch)]
        self._idle.append(request)
        return outputs

    def _take(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return self._model.create_infer_request()


def _round_shape(shape: BatchShape, multiple: int) -> BatchShape:
    """Round the shape of a call up. Lengths beyond `_SMALL_SIZE` become multiples of `multiple`."""
    small = min(multiple, _SMALL_MULTIPLE)
    many = multiple if multiple == 1 else multiple * _POSITIONS_PER_LENGTH
    return shape.rounded(
        positions=small if shape.positions <= _SMALL_SIZE else many,
        longest=small if shape.longest <= _SMALL_SIZE else multiple,
    )


def _compile_widths(
    core: "openvino.Core", path: Path, precision: Precision, widths: Sequence[int], cores: int
) -> dict[int, CompiledWidth]:
    """Compile the graph in `path` for each of `widths`. Raises `UnsupportedModel` if OpenVINO raises."""
    try:
        model = core.read_model(path)
        return {width: CompiledWidth(core, model, precision, width, cores) for width in widths}
    except RuntimeError as error:
        raise UnsupportedModel(f"OpenVINO cannot compile {path}: {one_line(error)}") from error


def _offered(core: "openvino.Core") -> tuple[Precision, ...]:
    """Return the precisions with native multiplication: OpenVINO silently uses fp32 for all others."""
    native = core.get_property(_CPU, "OPTIMIZATION_CAPABILITIES")
    return (
        Precision.FP32,
        *((Precision.BF16,) if "BF16" in native else ()),
        *((Precision.INT8,) if multiplies_bytes() else ()),
    )


def _computed_in(core: "openvino.Core", precision: Precision) -> Precision:
    """Return the precision of the operators that are not computed in int8."""
    if precision is not Precision.INT8:
        return precision
    return Precision.BF16 if Precision.BF16 in _offered(core) else Precision.FP32


def _name(description: "ModelDescription", precision: Precision, cache_dir: Path) -> str:
    release = openvino.__version__.partition("-")[0]
    # OpenVINO converts weights to the other precisions.
    weights = "int8-selected-" if precision is Precision.INT8 else ""
    return f"{prepared_name(description, cache_dir)}-openvino-{weights}{release}-{processor_name()}"


def _prepare(
    description: "ModelDescription",
    precision: Precision,
    cache_dir: Path,
    open_folder: "Callable[[ModelDescription, Path, Precision], Engine]",
) -> PreparedModel:
    """Return the prepared folder of a model, filled if it is missing."""

    def fill(folder: Path) -> None:
        _fill(description, precision, folder, partial(open_folder, description))
        share_base_weights(
            description, folder, cache_dir, lambda base: _prepare(base, precision, cache_dir, open_folder)
        )

    return prepare_model(
        cache_dir,
        _name(description, precision, cache_dir),
        fill,
        estimate_bytes=lambda: 2 * fp32_bytes(description.weights_files),
    )


def _fill(
    description: "ModelDescription", precision: Precision, folder: Path, open_folder: "OpenFolder"
) -> None:
    """Write the graph of the model to `folder`."""
    # Imported only when a graph is built: this import takes longer than a whole later start.
    from vecmill.architectures.build import build_graph
    from vecmill.engines.openvino_int8 import build_int8_graph
    from vecmill.graphs.batch_layout import IndexedLayout
    from vecmill.graphs.finish import write_graph

    if precision is Precision.INT8:
        graph = build_int8_graph(description, folder, open_folder)
    else:
        graph = build_graph(description, IndexedLayout)
    write_graph(graph, folder / MODEL_FILE)
