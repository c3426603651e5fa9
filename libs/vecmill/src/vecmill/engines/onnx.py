"""ONNX Runtime, fp32 and int8 (`vecmill.quantization`).

The first start builds the model's graph, lets ONNX Runtime optimise it and pack its weights, and keeps the
result (`engines.prepared`). Every start opens that file as it is, once per lane width: a session
has the threads that it was made with, and one made for several threads is slow for several
callers. Both sessions map the same packed weights, so the second costs next to no memory.

Nothing spins: an idle lane leaves its cores to others.

Other execution providers than the CPU's (`engines.providers`) optimise and pack for themselves: the folder
then holds the plain graph, and one session serves all calls. Graphs that others exported (`engines.exported`)
are prepared and opened like our own.
"""

import ctypes
import gc
import logging
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import onnxruntime

from vecmill.engines.base import Survey, choose_precision
from vecmill.engines.calls import Call, IndexedCall, RaggedCall, make_rows
from vecmill.engines.exported import fill_exported, open_exported, read_prepared
from vecmill.engines.prepared import (
    MODEL_FILE,
    WEIGHTS_FILE,
    PreparedModel,
    prepare_model,
    processor_name,
)
from vecmill.engines.processor import multiplies_bytes
from vecmill.engines.providers import ON_CPU, ProviderChoice, check_started, choose_provider, seen_devices
from vecmill.engines.warming import warm_engine
from vecmill.errors import InferenceFailed, UnsupportedModel
from vecmill.models import fingerprint_model
from vecmill.plan import EnginePlan, Precision
from vecmill.types import Batch, CostModel, EngineInfo, Rows

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

logger = logging.getLogger(__name__)

# Threads of one call wait so long for the next operator before they sleep: of a short text most operators
# end within it, and waking a thread costs about as much. Longer, they would keep cores from others.
SPIN_US = 50

_ERRORS_ONLY = 3  # ONNX Runtime's log severity; a failed call raises all the same


class OnnxEngine:
    """A model in ONNX Runtime: one narrow session for any number of callers, one wide one for one caller.

    `calls` runs each of the widths.
    """

    def __init__(self, info: EngineInfo, prepared: PreparedModel, calls: Mapping[int, Call]) -> None:
        self._info = info
        self._prepared = prepared
        self._calls = dict(calls)

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Prepare the model if this machine has not yet, and open it. Blocks; seconds at the first start.

        Raises `CorruptModel` if weights are missing, broken or not what was promised, `InvalidConfig` or
        `MissingExtra` for a device that is not to be had.
        """
        choice = choose_provider(plan.device, onnxruntime.get_available_providers(), cache_dir=cache_dir)
        wanted = Precision.FP32
        if description.exported_graph is None:
            wanted = choose_precision(plan, _offered(choice.is_cpu))
        prepared = _prepare(description, wanted, choice, cache_dir)
        precision = wanted
        if description.exported_graph is not None:  # it has one precision, whatever is asked for
            precision = choose_precision(plan, (read_prepared(prepared.folder).precision,))
        widths = plan.widths_within(cores) if choice.is_cpu else (1,)
        info = EngineInfo(
            name="onnx",
            precision=precision,
            device=choice.device,
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=widths,
            form=description.row_form,
            parallel_calls=None if choice.is_cpu else 1,
            batch_tokens=plan.max_batch_tokens,
        )
        calls = {width: _open_call(description, prepared, choice, plan, width) for width in widths}
        return cls(info, prepared, calls)

    @classmethod
    def survey(cls) -> Survey:
        """The devices whose providers the installed wheel has."""
        devices = seen_devices(onnxruntime.get_available_providers())
        return Survey({device: _offered(device == "cpu") for device in devices})

    @property
    def info(self) -> EngineInfo:
        """What this engine is and can do."""
        return self._info

    @property
    def prepared_model_path(self) -> Path:
        """The optimised graph on disk, for this processor and release of ONNX Runtime alone."""
        return self._prepared.path

    def warm_up(self) -> CostModel:
        """Run a few sizes on every session, so that buffers are there, and fit the narrow one's cost."""
        return warm_engine(self)

    def run(self, batch: Batch, *, width: int) -> Rows:
        """Compute rows in the form that `info` says. Raises `InferenceFailed` where ONNX Runtime raises."""
        call = self._calls.get(width)
        if call is None:
            raise InferenceFailed(f"The engine has no open session for {width} cores.")
        try:
            outputs = call(batch)
        except Exception as error:
            raise InferenceFailed(
                f"ONNX Runtime failed on {len(batch)} texts of {len(batch.token_ids)} tokens: "
                f"{type(error).__name__}."
            ) from error
        computed_tokens = len(batch) * int(batch.lengths.max())
        return make_rows(self._info.form, outputs, batch, computed_tokens=computed_tokens)

    def close(self) -> None:
        """Close the sessions; calls that are running finish first."""
        self._calls.clear()
        self._prepared.close()


def _offered(on_cpu: bool) -> tuple[Precision, ...]:
    """What our own graphs can be computed in."""
    if on_cpu and multiplies_bytes():
        return (Precision.FP32, Precision.INT8, Precision.INT8_FAST)
    return (Precision.FP32,)


def _prepare(
    description: "ModelDescription", precision: Precision, choice: ProviderChoice, cache_dir: Path
) -> PreparedModel:
    """The prepared folder of a model for a device, filled if need be."""
    name = f"{fingerprint_model(description)}-{onnxruntime.__version__}-"
    name += "" if precision is Precision.FP32 else f"{precision}-"
    # What is packed depends on the processor; a plain graph is the same for all other devices.
    name += processor_name() if choice.is_cpu else "plain"

    def fill(folder: Path) -> None:
        if description.exported_graph is not None:
            fill_exported(description, folder, _store if choice.is_cpu else _copy)
        elif choice.is_cpu:
            _fill(description, precision, folder)
        else:
            _fill_plain(description, folder)

    return prepare_model(cache_dir, name, fill)


def _open_call(
    description: "ModelDescription",
    prepared: PreparedModel,
    choice: ProviderChoice,
    plan: EnginePlan,
    threads: int,
) -> Call:
    session = _open(prepared.path, threads, choice)
    if description.exported_graph is not None:
        return open_exported(description, prepared.folder, session, lambda path: open_graph(path, threads))
    if choice.is_cpu:
        return RaggedCall(session)
    return IndexedCall(
        session,
        description.row_form,
        token_count=description.token_count,
        compiles=choice.compiles,
        length_multiple=plan.length_multiple,
    )


def _open(path: Path, threads: int, choice: ProviderChoice = ON_CPU) -> "onnxruntime.InferenceSession":
    options = _options(threads)
    if choice.is_cpu:
        # The file is optimised already; doing it again would undo the sharing of packed weights.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = _start(path, options, choice)
    check_started(choice, session.get_providers())
    return session


def open_graph(path: Path, threads: int) -> "onnxruntime.InferenceSession":
    """A session on the processor for a small graph, such as `graphs.exported.build_stages` makes."""
    return _start(path, _options(threads))


def _options(threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.enable_mem_pattern = False  # made for shapes that come again; here each batch has its own
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if threads > 1 else "0")
    if threads > 1:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
    return options


def _start(path: Path, options: Any, choice: ProviderChoice = ON_CPU) -> "onnxruntime.InferenceSession":
    providers = [(name, dict(settings)) for name, settings in choice.providers]
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise UnsupportedModel(f"ONNX Runtime cannot load {path}: {error}") from error


def _fill(description: "ModelDescription", precision: Precision, folder: Path) -> None:
    """Build the graph, and have ONNX Runtime write it optimised, with packed weights, into `folder`."""
    # Imported only when a graph has to be built: it takes longer than a later start as a whole.
    from vecmill.graphs.build import build_graph, write_graph

    with tempfile.TemporaryDirectory(prefix="graph-", dir=folder) as scratch:
        plain = Path(scratch) / "plain.onnx"
        write_graph(build_graph(description), plain)
        if precision is not Precision.FP32:
            plain = _quantize(description, precision, plain)
        # A graph's nodes refer to each other, so only the collector frees it, and the mapped weights with it.
        gc.collect()
        _store(plain, folder)
    _return_freed_memory()


def _quantize(description: "ModelDescription", precision: Precision, plain: Path) -> Path:
    """Write the int8 graph of a model beside the fp32 one in `plain`."""
    from vecmill.graphs.build import build_graph, write_graph
    from vecmill.quantization import calibration_sequences, quantize_graph

    logger.info("Making the %s weights of %s; this happens once.", precision, description.name)
    graph = build_graph(description)
    quantize_graph(graph, plain, precision, calibration_sequences(description))
    quantized = plain.with_name("quantized.onnx")
    write_graph(graph, quantized)
    return quantized


def _fill_plain(description: "ModelDescription", folder: Path) -> None:
    """Write the graph into `folder` as it is, with indices as inputs: they are no work for an accelerator."""
    from vecmill.graphs.build import build_graph, drop_unused, write_graph
    from vecmill.graphs.layout import IndexedLayout

    write_graph(drop_unused(build_graph(description, IndexedLayout)), folder / MODEL_FILE)
    gc.collect()


def _copy(graph: Path, folder: Path) -> None:
    """Copy an exported graph, and the weights beside it that are named after it, into `folder`."""
    for path in graph.parent.glob(f"{graph.name}*"):
        shutil.copyfile(path, folder / (MODEL_FILE if path == graph else path.name))


def _store(plain: Path, folder: Path) -> None:
    """Have ONNX Runtime optimise the graph in `plain`, and write it with packed weights into `folder`."""
    from vecmill.graphs.alignment import align_weights

    options = _options(threads=1)
    options.optimized_model_filepath = str(folder / MODEL_FILE)
    for key, value in (
        ("optimized_model_external_initializers_file_name", WEIGHTS_FILE),
        ("optimized_model_external_initializers_min_size_in_bytes", "1024"),
        ("save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(f"session.{key}", value)
    _start(plain, options)
    align_weights(folder / MODEL_FILE, folder / WEIGHTS_FILE)


def _return_freed_memory() -> None:
    """Give the system back what packing has freed, about the size of the weights: glibc would keep it."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have no such function
        if trim is not None:
            trim(0)
