"""OpenVINO on the CPU: fp32, and bf16 and int8 where the processor multiplies them.

OpenVINO reads the graph that we build with an `IndexedLayout`. It makes kernels for the shapes that it
sees, so the first call of a shape takes some milliseconds longer; positions and lengths are rounded up to
multiples of 8, which costs nothing that can be measured and leaves a third of the shapes.

There is one compiled model for each lane width. It has a *stream* for each call that fits on the cores at
once, and streams share one packed copy of the weights. Whoever calls is served by whichever stream
is free: calls go through OpenVINO's own queue, because a call on the caller's own thread is bound to
a stream by the order in which threads first came, and two may have to share one.

int8 is a graph with weights of 8 bits (`quantization.compression`); OpenVINO rounds activations itself, and
computes the rest in bf16 where that is native.

Packing is quick, and what OpenVINO can keep of a compiled model is not packed; so the prepared folder
(`engines.prepared`) holds the graph as it was built.
"""

import logging
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import openvino

from vecmill.engines.base import Survey, choose_precision
from vecmill.engines.calls import make_rows, trim_outputs
from vecmill.engines.indices import Extent, index_batch, refuse_unknown_tokens
from vecmill.engines.prepared import MODEL_FILE, PreparedModel, prepare_model, processor_name
from vecmill.engines.processor import multiplies_bytes
from vecmill.engines.warming import warm_engine
from vecmill.errors import InferenceFailed, InvalidConfig, MissingExtra, UnsupportedModel
from vecmill.models import fingerprint_model
from vecmill.plan import EnginePlan, Precision
from vecmill.types import Batch, CostModel, EngineInfo, Rows

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

logger = logging.getLogger(__name__)

_CPU = "CPU"
_LENGTH_MULTIPLES = (8, 16, 1)
_SHAPES_KEPT = 200  # of each kind of kernel in each stream
_TYPE_NAMES: Mapping[Precision, str] = {Precision.FP32: "f32", Precision.BF16: "bf16"}
# Inputs that share a scale when activations are rounded: half as many are no more accurate, twice as many
# less.
_ROUNDED_TOGETHER = 128


class OpenVinoEngine:
    """A model in OpenVINO, compiled once for each lane width. `models` runs each of the widths."""

    def __init__(
        self,
        info: EngineInfo,
        prepared: PreparedModel,
        models: Mapping[int, "CompiledWidth"],
        *,
        token_count: int,
        length_multiple: int,
    ) -> None:
        self._info = info
        self._prepared = prepared
        self._models = dict(models)
        self._token_count = token_count
        self._multiple = length_multiple

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Prepare the model if this machine has not yet, and compile it. Blocks; about a second.

        Raises `CorruptModel` if weights are missing, broken or not what was promised, `InvalidConfig` for a
        precision or a device that is not to be had, `UnsupportedModel` if OpenVINO cannot compile the graph.
        """
        if plan.device not in (None, "cpu"):
            raise InvalidConfig(f"The openvino engine computes on cpu, not on {plan.device}.")
        core = openvino.Core()
        precision = choose_precision(plan, _offered(core))
        prepared = prepare_model(
            cache_dir, _name(description, precision), lambda folder: _fill(description, precision, folder)
        )
        widths = plan.widths_within(cores)
        info = EngineInfo(
            name="openvino",
            precision=precision,
            device="cpu",
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=widths,
            form=description.row_form,
            batch_tokens=plan.max_batch_tokens,
        )
        try:
            model = core.read_model(prepared.path)
            models = {width: CompiledWidth(core, model, precision, width, cores) for width in widths}
        except RuntimeError as error:
            raise UnsupportedModel(f"OpenVINO cannot compile {prepared.path}: {error}") from error
        return cls(
            info,
            prepared,
            models,
            token_count=description.token_count,
            length_multiple=plan.length_multiple or _LENGTH_MULTIPLES[0],
        )

    @classmethod
    def survey(cls) -> Survey:
        """The processor."""
        return Survey({"cpu": _offered(openvino.Core())}, _LENGTH_MULTIPLES)

    @property
    def info(self) -> EngineInfo:
        """What this engine is and can do."""
        return self._info

    def warm_up(self) -> CostModel:
        """Run a few sizes in every width, so that buffers are there, and fit the narrow one's cost."""
        return warm_engine(self)

    def run(self, batch: Batch, *, width: int) -> Rows:
        """Compute rows in the form that `info` says. Raises `InferenceFailed` where OpenVINO raises."""
        model = self._models.get(width)
        if model is None:
            raise InferenceFailed(f"The engine has no compiled model for {width} cores.")
        described = f"{len(batch)} texts of {len(batch.token_ids)} tokens"
        try:
            refuse_unknown_tokens(batch, self._token_count)
        except ValueError as error:
            raise InferenceFailed(f"The model does not know every token of {described}.") from error
        extent = Extent.of(batch).rounded(positions=self._multiple, longest=self._multiple)
        try:
            outputs = model.compute(index_batch(batch, extent))
        except RuntimeError as error:
            raise InferenceFailed(f"OpenVINO failed on {described}: {type(error).__name__}.") from error
        trimmed = trim_outputs(outputs, batch, self._info.form)
        return make_rows(self._info.form, trimmed, batch, computed_tokens=extent.texts * extent.longest)

    def close(self) -> None:
        """Let go of the compiled models; calls that are running finish first."""
        self._models.clear()
        self._prepared.close()


class CompiledWidth:
    """A model compiled for calls of `width` threads, as many at once as fit on `cores`."""

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
            # Other processes may have a better use for a core than we have.
            "ENABLE_CPU_PINNING": False,
            "CPU_RUNTIME_CACHE_CAPACITY": _SHAPES_KEPT,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": _ROUNDED_TOGETHER if precision is Precision.INT8 else 0,
        }
        self._model = core.compile_model(model, _CPU, settings)
        self._inputs = [found.any_name for found in self._model.inputs]
        self._idle: deque[Any] = deque()  # requests, the one used last on the right: its memory is warm

    def compute(self, indices: Mapping[str, Any]) -> list[Any]:
        """The outputs of the graph for the inputs that `index_batch` made. Raises `RuntimeError`."""
        request = self._take()
        # The request reads the arrays where they are, so they have to outlive the call.
        feed = {name: indices[name] for name in self._inputs}
        request.start_async(feed, share_inputs=True)
        request.wait()
        outputs = [np.array(tensor.data) for tensor in request.output_tensors]
        self._idle.append(request)
        return outputs

    def _take(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return self._model.create_infer_request()


def _offered(core: "openvino.Core") -> tuple[Precision, ...]:
    """What the processor multiplies itself: OpenVINO would compute in fp32 without a word."""
    native = core.get_property(_CPU, "OPTIMIZATION_CAPABILITIES")
    return (
        Precision.FP32,
        *((Precision.BF16,) if "BF16" in native else ()),
        *((Precision.INT8,) if multiplies_bytes() else ()),
    )


def _computed_in(core: "openvino.Core", precision: Precision) -> Precision:
    """What the parts of a model are computed in that are not multiplied in 8 bits."""
    if precision is not Precision.INT8:
        return precision
    return Precision.BF16 if Precision.BF16 in _offered(core) else Precision.FP32


def _name(description: "ModelDescription", precision: Precision) -> str:
    release = openvino.__version__.partition("-")[0]
    weights = "int8-" if precision is Precision.INT8 else ""  # of the others OpenVINO makes what it needs
    return f"{fingerprint_model(description)}-openvino-{weights}{release}-{processor_name()}"


def _fill(description: "ModelDescription", precision: Precision, folder: Path) -> None:
    """Build the graph in `folder`."""
    # Imported only when a graph has to be built: it takes longer than a later start as a whole.
    from vecmill.graphs.build import build_graph, write_graph
    from vecmill.graphs.layout import IndexedLayout

    graph = build_graph(description, IndexedLayout)
    if precision is Precision.INT8:
        _compress(description, graph, folder)
    write_graph(graph, folder / MODEL_FILE)


def _compress(description: "ModelDescription", graph: Any, folder: Path) -> None:
    """Give `graph` int8 weights. Raises `MissingExtra` without ONNX Runtime, which runs the fp32 graph."""
    from vecmill.graphs.build import build_graph, write_graph

    try:
        from vecmill.quantization import calibration_sequences, compress_weights
    except ImportError as error:
        raise MissingExtra(
            "Making int8 weights for the openvino engine needs onnxruntime: pip install 'vecmill[cpu]'."
        ) from error
    logger.info("Making the int8 weights of %s; this happens once.", description.name)
    with tempfile.TemporaryDirectory(prefix="graph-", dir=folder) as scratch:
        plain = Path(scratch) / "plain.onnx"
        observed = build_graph(description)
        write_graph(build_graph(description), plain)
        compress_weights(graph, observed, plain, calibration_sequences(description))
