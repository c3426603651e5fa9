"""Sessions of ONNX Runtime: their options, and how a prepared model or a graph is opened."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime

from vecmill.engines.prepared import (
    BuiltGraph,
    PreparedModel,
)
from vecmill.engines.providers import ON_CPU, ProviderChoice, check_started
from vecmill.errors import UnsupportedModel, one_line
from vecmill.hardware.denormals import kept_float_environment

if TYPE_CHECKING:
    pass


# How long the threads of a wide session wait for the next operator of a call before they sleep.
SPIN_US = 2_000


# Of the session for long texts: as long as from one operator to the next.
LONG_SPIN_US = 50


# The optimisations that would turn weights in 16 bits into fp32, and keep the results. The second crashes the
# process in ONNX Runtime 1.27, the newest with MIGraphX.
_WIDENING = ("ConstantFolding", "FuseFp16InitializerToFp32NodeTransformer")


_ERRORS_ONLY = 3  # ONNX Runtime's log severity; a failed call raises in any case


def open_prepared(
    prepared: PreparedModel, choice: ProviderChoice, options: Any
) -> "onnxruntime.InferenceSession":
    """Open a session of a prepared model. Raises `UnsupportedModel`."""
    if prepared.built is not None:
        return open_built(prepared.built, options)
    if choice.is_cpu:
        # The file is optimised already; a second optimisation would undo the sharing of packed weights.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = _start(prepared.path, options, choice)
    check_started(choice, session.get_providers())
    return session


def open_built(
    graph: BuiltGraph, options: Any, *, left_out: Sequence[str] = ()
) -> "onnxruntime.InferenceSession":
    """Open a session of a graph in memory, without the optimisations `left_out`."""
    if graph.files:
        from vecmill.graphs.external_data import map_weights

        map_weights(options, graph.files)
    return _start(graph.source, options, left_out=_WIDENING if graph.keeps_16_bits else left_out)


def open_cpu_session(path: Path, threads: int) -> "onnxruntime.InferenceSession":
    """Open a session on the CPU for a small graph, such as a graph of `graphs.exported.build_stages`."""
    return _start(path, session_options(threads))


def session_options(threads: int, *, spin_us: int = SPIN_US, in_bf16: bool = False) -> Any:
    """Return the options of a session whose calls use so many threads."""
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


def shrinking_run() -> Any:
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
