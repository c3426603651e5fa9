"""The ONNX Runtime engine, in fp32, int8 (`vecmill.quantization`), and bf16 on Arm processors that have it.

The first start builds the model's graph, lets ONNX Runtime optimise the graph and pack its weights, and
stores the result in the cache (`engines.prepared`). Every start opens this file without further optimisation,
in one session of one thread, and in as many sessions of each wider lane width as fit into the cores. The
number of threads of a session is fixed, and a session with several threads is slow when several callers use
it at once. All sessions map the same packed weights, so another session takes little memory.

The threads of a wide session spin while a call runs: waking a thread for each operator takes longer than
many operators do. They sleep as soon as the call ends, because the event loop and the client need the cores
to get the answer there.

Long texts that use all cores have a session of their own (`long_texts`). Its threads spin for `LONG_SPIN_US`
between two operators, and give way to the calls of short texts.

Execution providers other than the CPU provider (`engines.providers`) optimise graphs and pack weights by
themselves. For these providers the folder holds the plain graph, and one session serves all calls. Graphs
that another program exported (`engines.session_calls`) are prepared and opened like the graphs that vecmill
builds.
"""

import gc
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import onnxruntime

from vecmill.engines.base import EngineCapabilities, choose_precision, warm_engine
from vecmill.engines.base_weights import share_base_weights
from vecmill.engines.long_texts import (
    LongTextCall,
    Shrinking,
    YieldingSession,
    count_padded,
    group_long_texts,
)
from vecmill.engines.mapped_model import MappedModel
from vecmill.engines.prepared import (
    MODEL_FILE,
    NO_FOLDER,
    WEIGHTS_FILE,
    BuiltGraph,
    PreparedModel,
    fill_temporary,
    prepare_model,
)
from vecmill.engines.providers import ON_CPU, ProviderChoice, check_started, choose_provider, list_devices
from vecmill.engines.session_calls import (
    CallPool,
    IndexedCall,
    ModelCall,
    RaggedCall,
    make_embeddings,
    open_exported,
    prepare_exported,
    read_prepared,
)
from vecmill.errors import DeviceLost, InferenceFailed, UnsupportedModel, one_line
from vecmill.hardware.cores import lane_widths
from vecmill.hardware.denormals import kept_float_environment
from vecmill.hardware.memory import return_freed_memory
from vecmill.hardware.processor import multiplies_bf16, multiplies_bytes, processor_name
from vecmill.hardware.system_calls import second_cache_bytes
from vecmill.models import prepared_name
from vecmill.models.weights import fp32_bytes
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel, EngineInfo, EnginePlan, Precision

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

logger = logging.getLogger(__name__)

# How long the threads of a wide session wait for the next operator of a call before they sleep.
SPIN_US = 2_000
# Of the session for long texts: as long as from one operator to the next.
LONG_SPIN_US = 50

# The optimisations that would turn weights in 16 bits into fp32, and keep the results. The second crashes the
# process in ONNX Runtime 1.27, the newest with MIGraphX.
_WIDENING = ("ConstantFolding", "FuseFp16InitializerToFp32NodeTransformer")
# The optimisation that would make `Gemm` again of what `quantization.bf16_products` has split.
_GEMM = "MatMulAddFusion"
_ERRORS_ONLY = 3  # ONNX Runtime's log severity; a failed call raises in any case


class OnnxEngine:
    """A model in ONNX Runtime, with the calls of each lane width.

    A session of one thread serves any number of callers at once, a wider one serves one caller at a time. So
    as many sessions of each wider width are opened as fit into `cores`, at least one. `open_call` opens a
    session for calls on a number of cores.
    """

    def __init__(
        self, info: EngineInfo, prepared: PreparedModel, open_call: Callable[[int], ModelCall], *, cores: int
    ) -> None:
        self.info = info
        self._mapped = MappedModel(prepared, lambda: _open_side_by_side(info.lane_widths, open_call, cores))

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Open the prepared model; prepare it first if it is missing. Blocks, for seconds at the first start.

        Raises `CorruptModel` if weights are missing, broken or of unexpected shapes, and `InvalidConfig` or
        `MissingExtra` for a device that is not available.
        """
        choice = choose_provider(plan.device, onnxruntime.get_available_providers(), cache_dir=cache_dir)
        wanted = Precision.FP32
        if description.exported_graph is None:
            wanted = choose_precision(plan, _offered(choice.is_cpu))
        prepared = _prepare(description, wanted, choice, cache_dir)
        # In memory, each session has packed weights of its own.
        shares_weights = prepared.built is None
        widths: tuple[int, ...] = (1,)
        if choice.is_cpu:
            widths = lane_widths(plan.lane_widths, cores, has_middle=shares_weights)
        with prepared.closed_on_error():
            precision, is_finished = wanted, False
            if description.exported_graph is not None:  # an exported graph has one precision
                graph = read_prepared(prepared.folder)
                precision, is_finished = choose_precision(plan, (graph.precision,)), not graph.is_per_token
            info = _describe(description, plan, choice, precision, widths)
            info = replace(info, is_finished=is_finished)
            return cls(
                info,
                prepared,
                lambda width: _open_call(description, prepared, choice, plan, width),
                cores=cores if shares_weights else 1,
            )

    @classmethod
    def load_in_place(cls, description: "ModelDescription", *, cores: int) -> Self:
        """Open the model in fp32 on the CPU, from the weights where they are, to compare with its outputs.

        Writes nothing. Weights of 16 bits keep them, so that a large model needs little memory. Calls are
        slower than those of a prepared model. Raises the same errors as `load`.
        """
        plan = EnginePlan()
        info = _describe(description, plan, ON_CPU, Precision.FP32, (cores,))
        prepared = _build_in_memory(description, keeps_16_bits=True)
        return cls(
            info, prepared, lambda width: _open_call(description, prepared, ON_CPU, plan, width), cores=1
        )

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        """Return the devices whose providers are in the installed wheel."""
        devices = list_devices(onnxruntime.get_available_providers())
        return EngineCapabilities({device: _offered(device == "cpu") for device in devices})

    @property
    def prepared_model_path(self) -> Path:
        """The file of the optimised graph, valid only for this processor and this release of ONNX Runtime."""
        return self._mapped.prepared.path

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Run batches of a few sizes on every session, and return the fitted cost of the narrowest."""
        return warm_engine(self, texts)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Compute embeddings of `info.output_shape`.

        Raises `InferenceFailed` if ONNX Runtime raises, and `DeviceLost` if the prepared files were changed
        and cannot be opened again.
        """
        if width not in self._mapped.sessions:
            raise InferenceFailed(f"The engine has no open session for calls on {width} cores.")
        try:
            outputs = self._mapped.run(lambda calls: calls[width](batch))
        except DeviceLost:
            raise
        except Exception as error:
            raise InferenceFailed(
                f"ONNX Runtime failed on {len(batch)} texts with {len(batch.token_ids)} tokens in total: "
                f"{type(error).__name__}."
            ) from error
        computed_tokens = count_padded(batch, group_long_texts(batch))
        return make_embeddings(self.info, outputs, batch, computed_tokens=computed_tokens)

    def renew(self) -> None:
        """Open new sessions from the prepared model, which is prepared again if its files have changed.

        A hung call can block other calls of a wide session, whose threads they share, and all calls on a
        device. Raises `UnsupportedModel` if ONNX Runtime cannot open a session.
        """
        self._mapped.renew()

    def close(self) -> None:
        """Close the sessions after the running calls."""
        self._mapped.sessions.clear()
        self._mapped.prepared.close()


def _describe(
    description: "ModelDescription",
    plan: EnginePlan,
    choice: ProviderChoice,
    precision: Precision,
    widths: tuple[int, ...],
) -> EngineInfo:
    return EngineInfo(
        name="onnx",
        precision=precision,
        device=choice.device,
        dim=description.dim,
        max_tokens=description.max_tokens,
        lane_widths=widths,
        output_shape=description.output_shape,
        normalizes=description.normalizes_output,
        parallel_calls=None if choice.is_cpu else 1,
        batch_tokens=plan.max_batch_tokens,
        shares_prefixes=description.shares_prefixes,
    )


def _open_side_by_side(
    widths: Sequence[int], open_call: Callable[[int], ModelCall], cores: int
) -> dict[int, ModelCall]:
    """Open the calls of all widths at once: the runtime hashes the packed weights on one core for each."""
    wanted = [width for width in widths for _ in range(1 if width == 1 else max(1, cores // width))]
    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        opened = list(zip(wanted, pool.map(open_call, wanted), strict=True))
    return {width: CallPool([call for each, call in opened if each == width]) for width in widths}


def _offered(on_cpu: bool) -> tuple[Precision, ...]:
    """Return the precisions of the graphs that vecmill builds."""
    offered = [Precision.FP32]
    if on_cpu and multiplies_bf16():
        offered.append(Precision.BF16)
    if on_cpu and multiplies_bytes():
        offered += (Precision.INT8, Precision.INT8_FAST, Precision.INT8_BLOCKS)
    return tuple(offered)


def _prepare(
    description: "ModelDescription", precision: Precision, choice: ProviderChoice, cache_dir: Path
) -> PreparedModel:
    """Return the prepared folder of a model for a device, filled if it is missing."""
    name = f"{prepared_name(description, cache_dir)}-{onnxruntime.__version__}-"
    name += "" if precision is Precision.FP32 else f"{precision}-"
    if choice.is_cpu and description.exported_graph is None:
        name += "flash-" if second_cache_bytes() else "blocks-"
    # Packed weights depend on the processor; the plain graph is the same for all other devices.
    name += processor_name() if choice.is_cpu else "plain"

    def fill(folder: Path) -> None:
        if description.exported_graph is not None:
            prepare_exported(description, folder, _store_exported if choice.is_cpu else _copy)
        elif choice.is_cpu:
            _fill(description, precision, folder)
            share_base_weights(
                description, folder, cache_dir, lambda base: _prepare(base, precision, choice, cache_dir)
            )
        else:
            _fill_plain(description, folder)

    in_memory = None
    if choice.is_cpu and precision is Precision.FP32:
        in_memory = partial(_build_in_memory, description)
    return prepare_model(
        cache_dir,
        name,
        fill,
        estimate_bytes=partial(_estimate_bytes, description, precision),
        in_memory=in_memory,
    )


# The size of the prepared files and of those that they are made from, for two bytes of fp32 weights. ONNX
# Runtime stores a weight that it packs twice.
_DISK: Mapping[Precision, int] = {
    Precision.FP32: 5,
    Precision.BF16: 5,
    Precision.INT8: 4,
    Precision.INT8_FAST: 4,
    Precision.INT8_BLOCKS: 2,
}
_EXPORTED_DISK = 3


def _estimate_bytes(description: "ModelDescription", precision: Precision) -> int:
    """Return the estimated size of the prepared files and of the graph that they are made from."""
    parts = _EXPORTED_DISK if description.exported_graph is not None else _DISK[precision]
    return fp32_bytes(description.weights_files) * parts // 2


def _build_in_memory(description: "ModelDescription", *, keeps_16_bits: bool = False) -> PreparedModel:
    """Return a model whose graph ONNX Runtime optimises in memory, without large files."""
    if description.exported_graph is not None:
        prepared = fill_temporary(
            lambda folder: prepare_exported(description, folder, lambda graph, target: None)
        )
        prepared.built = BuiltGraph(description.exported_graph)
        return prepared
    from vecmill.graphs.external_data import serialize_graph

    graph = serialize_graph(_build_graph(description, keeps_16_bits=keeps_16_bits))
    gc.collect()
    built = BuiltGraph(graph.graph, graph.files, graph.published, keeps_16_bits)
    return PreparedModel(NO_FOLDER, built=built)


def _open_call(
    description: "ModelDescription",
    prepared: PreparedModel,
    choice: ProviderChoice,
    plan: EnginePlan,
    threads: int,
) -> ModelCall:
    in_bf16 = plan.precision == Precision.BF16
    session = _open_prepared(prepared, choice, _options(threads, in_bf16=in_bf16))
    if description.exported_graph is not None:
        return open_exported(
            description, prepared.folder, session, lambda path: open_cpu_session(path, threads)
        )
    if choice.is_cpu:
        if description.has_long_texts:
            long_session: Shrinking = session
            if threads > 1 and prepared.built is None:  # else a session of its own packs weights of its own
                long_session = _open_for_long_texts(prepared, choice, threads, in_bf16=in_bf16)
            return LongTextCall(
                session,
                description.output_shape,
                long_session,
                _shrinking_run(),
                return_freed_memory,
                shares_prefixes=description.shares_prefixes,
            )
        return RaggedCall(session, shares_prefixes=description.shares_prefixes)
    return IndexedCall(
        session,
        description.output_shape,
        token_count=description.token_count,
        compiles=choice.compiles,
        length_multiple=plan.length_multiple,
        shares_prefixes=description.shares_prefixes,
    )


def _open_for_long_texts(
    prepared: PreparedModel, choice: ProviderChoice, threads: int, *, in_bf16: bool
) -> Shrinking:
    """Return a session whose threads keep no core from other calls: they have a low priority."""
    options = _options(threads, spin_us=LONG_SPIN_US, in_bf16=in_bf16)
    return YieldingSession(lambda: _open_prepared(prepared, choice, options))


def _open_prepared(
    prepared: PreparedModel, choice: ProviderChoice, options: Any
) -> "onnxruntime.InferenceSession":
    if prepared.built is not None:
        return _open_built(prepared.built, options)
    if choice.is_cpu:
        # The file is optimised already; a second optimisation would undo the sharing of packed weights.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = _start(prepared.path, options, choice)
    check_started(choice, session.get_providers())
    return session


def _open_built(
    graph: BuiltGraph, options: Any, *, left_out: Sequence[str] = ()
) -> "onnxruntime.InferenceSession":
    if graph.files:
        from vecmill.graphs.external_data import map_weights

        map_weights(options, graph.files)
    return _start(graph.source, options, left_out=_WIDENING if graph.keeps_16_bits else left_out)


def open_cpu_session(path: Path, threads: int) -> "onnxruntime.InferenceSession":
    """Open a session on the CPU for a small graph, such as a graph of `graphs.exported.build_stages`."""
    return _start(path, _options(threads))


def _options(threads: int, *, spin_us: int = SPIN_US, in_bf16: bool = False) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.enable_mem_pattern = False  # for repeated shapes; here each batch has another shape
    spins = threads > 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spins else "0")
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    if spins:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(spin_us))
        options.add_session_config_entry("session.force_spinning_stop", "1")  # at the end of a call
    if in_bf16:  # products of 1,024 weights or more; sums are in fp32
        options.add_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "1")
    return options


def _shrinking_run() -> Any:
    """Return run options that free the unused memory of the session's arena after a call."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def _start(
    source: Path | bytes,
    options: Any,
    choice: ProviderChoice = ON_CPU,
    *,
    left_out: Sequence[str] = (),
) -> "onnxruntime.InferenceSession":
    """Open a session of a graph, or of the file of a graph, without the optimisations `left_out`.

    Raises `UnsupportedModel`.
    """
    providers = [(name, dict(settings)) for name, settings in choice.providers]
    given, name = (source, "the graph") if isinstance(source, bytes) else (str(source), source)
    try:
        # The first session of a process sets how the thread that opens it computes floats.
        with kept_float_environment():
            return onnxruntime.InferenceSession(
                given, options, providers=providers, disabled_optimizers=list(left_out)
            )
    except Exception as error:
        raise UnsupportedModel(f"ONNX Runtime cannot load {name}: {one_line(error)}") from error


def _build_graph(description: "ModelDescription", *, keeps_16_bits: bool = False) -> Any:
    """Return the graph for the CPU. It keeps 16 bits of all weights, or of tables alone."""
    # Imported only when a graph is built: this import takes longer than a whole later start.
    from vecmill.architectures.build import build_graph
    from vecmill.graphs.batch_layout import IndexedLayout, RaggedLayout
    from vecmill.graphs.ops import Kept

    layout = IndexedLayout if description.shares_prefixes else RaggedLayout
    kept = Kept.EVERYTHING if keeps_16_bits else Kept.TABLES
    return build_graph(
        description,
        layout,
        in_blocks=True,
        runtime_operators=_runtime_operators(),
        reads_last_tokens=True,
        kept=kept,
    )


def _runtime_operators() -> tuple[str, ...]:
    """Return those of ONNX Runtime's own operators that are faster here than others."""
    # Without the size of the cache, `MultiHeadAttention` holds the scores of all pairs of tokens.
    return ("RotaryEmbedding", *(("MultiHeadAttention",) if second_cache_bytes() else ()))


def _fill(description: "ModelDescription", precision: Precision, folder: Path) -> None:
    """Build the graph, and have ONNX Runtime write it, optimised and with packed weights, to `folder`."""
    from vecmill.graphs.external_data import serialize_graph
    from vecmill.quantization.bf16_products import split_products

    with tempfile.TemporaryDirectory(prefix="graph-", dir=folder) as scratch:
        graph = _build_graph(description)
        if precision is Precision.BF16:
            split_products(graph)
        elif precision is not Precision.FP32:
            _quantize(description, precision, graph, Path(scratch))
        made = serialize_graph(graph, Path(scratch) / WEIGHTS_FILE)
        # The nodes of a graph refer to each other, so only the collector frees the graph and its weights.
        del graph
        gc.collect()
        _store(BuiltGraph(made.graph, made.files), folder, in_bf16=precision is Precision.BF16)
    return_freed_memory()


def _quantize(description: "ModelDescription", precision: Precision, graph: Any, scratch: Path) -> None:
    """Replace the weights of linear layers of `graph` by int8. `scratch` is a folder for its fp32 weights."""
    from vecmill.graphs.external_data import serialize_graph
    from vecmill.quantization.block_weights import quantize_in_blocks
    from vecmill.quantization.calibration import calibration_sequences
    from vecmill.quantization.rewriting import quantize_graph

    logger.info("Quantising the weights of %s to %s; this happens once.", description.name, precision)
    if precision is Precision.INT8_BLOCKS:
        quantize_in_blocks(graph)
        return
    plain = serialize_graph(_build_graph(description), scratch / "plain.weights")
    quantize_graph(graph, plain, precision, calibration_sequences(description))


def _fill_plain(description: "ModelDescription", folder: Path) -> None:
    """Write the plain graph to `folder`, with indices as inputs: accelerators compute indices slowly."""
    from vecmill.architectures.build import build_graph
    from vecmill.graphs.batch_layout import IndexedLayout
    from vecmill.graphs.finish import drop_unused, write_graph

    write_graph(drop_unused(build_graph(description, IndexedLayout)), folder / MODEL_FILE)
    gc.collect()


def _store_exported(graph: Path, folder: Path) -> None:
    _store(BuiltGraph(graph), folder)


def _copy(graph: Path, folder: Path) -> None:
    """Copy an exported graph to `folder`, with its weight files, whose names begin with the graph's name."""
    for path in graph.parent.glob(f"{graph.name}*"):
        shutil.copyfile(path, folder / (MODEL_FILE if path == graph else path.name))


def _store(graph: BuiltGraph, folder: Path, *, in_bf16: bool = False) -> None:
    """Have ONNX Runtime optimise `graph`, and write it with packed weights to `folder`."""
    from vecmill.graphs.external_data import align_weights, drop_repeated_initializers

    options = _options(threads=1, in_bf16=in_bf16)
    options.optimized_model_filepath = str(folder / MODEL_FILE)
    for key, value in (
        ("optimized_model_external_initializers_file_name", WEIGHTS_FILE),
        ("optimized_model_external_initializers_min_size_in_bytes", "1024"),
        ("save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(f"session.{key}", value)
    _open_built(graph, options, left_out=(_GEMM,) if in_bf16 else ())
    align_weights(folder / MODEL_FILE, folder / WEIGHTS_FILE)
    drop_repeated_initializers(folder / MODEL_FILE)
