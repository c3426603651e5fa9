"""The time of an engine's call by operator, and by what the operators are for.

    make profile-engine ARGS="--engine openvino --tokens 256 --texts 8"

The runtime's own profiler measures the operators: that of ONNX Runtime, the performance counters of OpenVINO,
or torch's profiler. The call has one thread, so that the times of operators add up to the time of the call.
Its texts have the same number of tokens, or as many as `--lengths` says. For all-MiniLM-L6-v2 the report also
has the operations per second of the call, as a share of the fastest matrix products of any library
(`bench.matrix_peak`).
"""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.matrix_peak import load_matrix_peak, operations_of
from bench.program import make_parser, start
from bench.report import Figure, markdown_table
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.hardware.cores import available_cores
from vecmill.hardware.denormals import flush_denormals
from vecmill.models import locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.values.positions import BatchShape, Positions, index_batch

SEED = 20_261_126
CALLS = 30
WARM_UP = 5
BAR_WIDTH = 40
SHOWN_OPERATORS = 14

ROLES: Mapping[str, tuple[str, ...]] = {
    "linear layers": (
        *("Gemm", "MatMulNBits", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "FullyConnected"),
        *("FullyConnectedCompressed", "FullyConnectedQuantized", "addmm", "mm", "linear", "mkldnn_linear"),
    ),
    # OpenVINO compiles products, mask and softmax to one "Subgraph".
    "attention": (
        *("MatMul", "FusedMatMul", "Softmax", "MultiHeadAttention", "ScaledDotProductAttention"),
        *("Subgraph", "bmm", "_scaled_dot_product_flash_attention_for_cpu", "_softmax"),
    ),
    "activation": ("Gelu", "QuickGelu", "FastGelu", "BiasGelu", "Sigmoid", "Tanh", "Swish", "gelu"),
    "norms": (
        *("LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization", "MVN"),
        *("SkipSimplifiedLayerNormalization", "RMSNorm", "MulAdd", "native_layer_norm"),
    ),
    "rotation": ("RotaryEmbedding", "RoPE", "Sin", "Cos"),
    "quantisation": ("DynamicQuantizeLinear", "QuantizeLinear", "DequantizeLinear", "FakeQuantize"),
    "copies": (
        *("Gather", "Transpose", "Reshape", "Slice", "Split", "VariadicSplit", "Concat", "Expand", "Cast"),
        *("Reorder", "Convert", "StridedSlice", "copy_", "index", "index_select", "embedding"),
    ),
    "sums and products of elements": ("Add", "Mul", "Sub", "Div", "Eltwise", "Multiply", "add", "mul"),
}
# Operators that hold others, whose time is counted by itself.
HOLDERS = frozenset({"If", "Loop"})


@dataclass(frozen=True, slots=True)
class Operator:
    """The time of all operators of one type in a call."""

    name: str
    seconds: float
    count: float

    @property
    def role(self) -> str:
        """What the operator is for."""
        return next((role for role, names in ROLES.items() if self.name in names), "other")


Profile = Callable[[Engine, Precision, Batch], list[Operator]]


def profile_onnx(engine: Any, precision: Precision, batch: Batch) -> list[Operator]:
    """Run the engine's prepared graph with the profiler of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    with tempfile.TemporaryDirectory(prefix="vecmill-profile-") as folder:
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(str(engine.prepared_model_path), options)
        names = [found.name for found in session.get_inputs()]
        feed = _feed(batch, names)
        for _ in range(WARM_UP + CALLS):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    kernels = [event for event in events if event.get("name", "").endswith("_kernel_time")]
    kept = kernels[len(kernels) * WARM_UP // (WARM_UP + CALLS) :]
    spent, counts = Counter[str](), Counter[str]()
    for event in kept:
        name = event["args"]["op_name"]
        if name not in HOLDERS:
            spent[name] += event["dur"]
            counts[name] += 1
    return [Operator(name, spent[name] / 1e6 / CALLS, counts[name] / CALLS) for name in spent]


def profile_openvino(engine: Any, precision: Precision, batch: Batch) -> list[Operator]:
    """Run the engine's prepared graph with the performance counters of OpenVINO."""
    import openvino

    from vecmill.engines.openvino import CompiledWidth

    core = openvino.Core()
    core.set_property("CPU", {"PERF_COUNT": True})
    model = core.read_model(engine._mapped.prepared.path)
    compiled = CompiledWidth(core, model, precision, 1, 1)
    positions = Positions.of(batch, shares_prefixes=False)
    shape = BatchShape.of(batch, positions)
    spent, counts = Counter[str](), Counter[str]()
    for number in range(WARM_UP + CALLS):
        compiled.compute(batch, positions, shape)
        if number >= WARM_UP:
            for info in compiled._idle[-1].profiling_info:  # the request of this call
                spent[info.node_type] += info.real_time.total_seconds()
                counts[info.node_type] += 1
    return [Operator(name, spent[name] / CALLS, counts[name] / CALLS) for name in spent if spent[name]]


def profile_torch(engine: Any, precision: Precision, batch: Batch) -> list[Operator]:
    """Run the engine with torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(WARM_UP):
        engine.run(batch, width=1)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(CALLS):
            engine.run(batch, width=1)
    return [
        Operator(one.key.removeprefix("aten::"), one.self_cpu_time_total / 1e6 / CALLS, one.count / CALLS)
        for one in found.key_averages()
        if one.self_cpu_time_total
    ]


PROFILES: Mapping[str, Profile] = {
    "onnx": profile_onnx,
    "openvino": profile_openvino,
    "torch": profile_torch,
}


def _feed(batch: Batch, names: Sequence[str]) -> dict[str, Any]:
    """The inputs of a graph, whichever layout it has."""
    if all(hasattr(batch, name) for name in names):
        return {name: getattr(batch, name) for name in names}
    positions = Positions.of(batch, shares_prefixes=True)
    return dict(index_batch(batch, positions, BatchShape.of(batch, positions), names))


def time_call(engine: Engine, batch: Batch) -> float:
    """The median seconds of a call on one core, without a profiler."""
    times = []
    for _ in range(WARM_UP + CALLS):
        began = time.perf_counter()
        engine.run(batch, width=1)
        times.append(time.perf_counter() - began)
    return float(np.median(times[WARM_UP:]))


def bar(share: float) -> str:
    """A bar of text for a share of the whole."""
    return "#" * round(share * BAR_WIDTH)


def report(operators: Sequence[Operator], call_s: float) -> str:
    """Two tables: the time by role and by operator."""
    whole = sum(one.seconds for one in operators)
    roles = Counter[str]()
    for one in operators:
        roles[one.role] += one.seconds  # type: ignore[assignment]
    by_role = [
        [role, f"{1e3 * seconds:.3f}", f"{seconds / whole:.1%}", bar(seconds / whole)]
        for role, seconds in roles.most_common()
    ]
    ordered = sorted(operators, key=lambda one: -one.seconds)[:SHOWN_OPERATORS]
    by_operator = [
        [one.name, one.role, f"{one.count:g}", f"{1e3 * one.seconds:.3f}", f"{one.seconds / whole:.1%}"]
        for one in ordered
    ]
    return "\n".join(
        [
            f"A call takes {1e3 * call_s:.2f} ms, its operators {1e3 * whole:.2f} ms with the profiler.\n",
            markdown_table(["for", "ms", "share", ""], by_role),
            "",
            markdown_table(["operator", "for", "calls", "ms", "share"], by_operator),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path, help="A directory; all-MiniLM-L6-v2 by default.")
    parser.add_argument("--engine", default="onnx", choices=sorted(PROFILES))
    parser.add_argument("--precision", default="fp32", choices=[str(one) for one in Precision])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--lengths", type=int, nargs="+", help="The tokens of each text.")
    with start(parser, arguments, seed=SEED) as run:
        options = run.options
        lengths = options.lengths or [options.tokens] * options.texts
        precision = Precision(options.precision)
        random = np.random.default_rng(SEED)
        batch = Batch.of([TokenSequence.of(random.integers(5, 1000, length).tolist()) for length in lengths])
        flush_denormals()  # as in a lane
        plan = EnginePlan(options.engine, precision, lane_widths=(1,))
        description = describe_model(locate_model(options.model))
        engine = load_engine(description, plan, cores=1, cache_dir=run.folder)
        engine.warm_up()
        call_s = time_call(engine, batch)
        operators = PROFILES[options.engine](engine, precision, batch)
        engine.close()
    print(report(operators, call_s))
    figures = [Figure(f"{one.name} ({one.role})", "ms", (1e3 * one.seconds,)) for one in operators]
    figures.append(Figure("a call", "ms", (1e3 * call_s,)))
    if options.model is None:
        peak = load_matrix_peak(Path(), precision).measure([]) / available_cores()
        rate = operations_of(lengths) / call_s
        figures += [
            Figure("operations of the call", "GFLOP/s", (rate / 1e9,)),
            Figure("fastest matrix products, one core", "GFLOP/s", (peak / 1e9,)),
            Figure("share of the fastest", "ratio", (rate / peak,)),
        ]
    title = f"{options.engine}, {precision}, texts of {', '.join(map(str, dict.fromkeys(lengths)))} tokens"
    return run.finish("profile_engine", title, figures)


if __name__ == "__main__":
    sys.exit(main())
