"""The fastest that this machine multiplies matrices of a model's shapes: MLAS, oneDNN and MKL.

Each library multiplies the matrices of all layers of all-MiniLM-L6-v2, one product after the other, with as
many callers as there are cores and one thread each, as narrow lanes do. The weights of all layers together do
not fit into a core's cache, as in the model.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vecmill.engines.openvino_telemetry import no_openvino_telemetry
from vecmill.hardware.cores import available_cores
from vecmill.values.engine_plan import Precision

LAYERS = 6
WIDTH = 384
INNER = 4 * WIDTH
# Of each layer: queries, keys, values and output; then the two of the feed-forward network.
SHAPES = ((WIDTH, WIDTH),) * 4 + ((WIDTH, INNER), (INNER, WIDTH))
PRODUCT_OPERATIONS = 2 * LAYERS * sum(rows * columns for rows, columns in SHAPES)  # of each token
TOKENS = (256, 512, 1_024)
SECONDS = 1.0

Multiply = Callable[[], object]


def operations_of(lengths: Sequence[int]) -> float:
    """The floating-point operations that texts of these lengths need: products and attention."""
    attention = 4 * LAYERS * WIDTH  # scores and their sums, for each pair of tokens
    return sum(length * (PRODUCT_OPERATIONS + attention * length) for length in lengths)


@dataclass(frozen=True, slots=True)
class MatrixPeak:
    """The operations per second of each library, at the best number of tokens."""

    precision: Precision

    def measure(self, _texts: Sequence[str]) -> float:
        """The most operations per second of any library."""
        return max(self.rates().values())

    def rates(self) -> dict[str, float]:
        """The operations per second of each library that has this precision."""
        cores = available_cores()
        return {
            name: max(_rate(make(self.precision, tokens), tokens, cores) for tokens in TOKENS)
            for name, make in _libraries(self.precision).items()
        }


def load_matrix_peak(_cache_dir: Path, precision: Precision) -> MatrixPeak:
    """`MatrixPeak` as a rig."""
    return MatrixPeak(precision)


def _rate(multiply: Multiply, tokens: int, cores: int) -> float:
    multiply()
    counts = [0] * cores
    ends_at = time.perf_counter() + SECONDS

    def work(number: int) -> None:
        while time.perf_counter() < ends_at:
            multiply()
            counts[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(cores)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) * tokens * PRODUCT_OPERATIONS / (time.perf_counter() - began)


def _libraries(precision: Precision) -> dict[str, Callable[[Precision, int], Multiply]]:
    libraries: dict[str, Callable[[Precision, int], Multiply]] = {
        "oneDNN in OpenVINO": _openvino,
        "oneDNN and MKL in torch": _torch,
    }
    return {"MLAS in ONNX Runtime": _onnx, **libraries} if precision is Precision.FP32 else libraries


def _weights() -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    chance = np.random.default_rng(1)
    # Small, so that the numbers stay finite through all layers.
    return [
        chance.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0])) for shape in SHAPES * LAYERS
    ]


def _write_graph(folder: Path) -> Path:
    """Write the chain of products: attention's four go one after the other, since all are 384 wide."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = _weights()
    nodes = [
        helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"x{number + 1}"])
        for number in range(len(weights))
    ]
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["tokens", WIDTH])],
        [helper.make_tensor_value_info(f"x{len(weights)}", TensorProto.FLOAT, ["tokens", WIDTH])],
        [numpy_helper.from_array(weight, f"w{number}") for number, weight in enumerate(weights)],
    )
    path = folder / "products.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def _input(tokens: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(2).standard_normal((tokens, WIDTH), np.float32)


def _onnx(_precision: Precision, tokens: int) -> Multiply:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as folder:
        path = str(_write_graph(Path(folder)))
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {"x0": _input(tokens)}
    return lambda: session.run(None, feed)


def _openvino(precision: Precision, tokens: int) -> Multiply:
    with no_openvino_telemetry():
        import openvino

    core, cores = openvino.Core(), available_cores()
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if precision is Precision.BF16 else "f32",
        "NUM_STREAMS": cores,
        "INFERENCE_NUM_THREADS": cores,
        "ENABLE_CPU_PINNING": False,
    }
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as folder:
        model = core.compile_model(core.read_model(_write_graph(Path(folder))), "CPU", settings)
    data, local = _input(tokens), threading.local()

    def multiply() -> object:
        if not hasattr(local, "request"):
            local.request = model.create_infer_request()
        local.request.start_async({"x0": data}, share_inputs=True)
        local.request.wait()
        return local.request

    return multiply


def _torch(precision: Precision, tokens: int) -> Multiply:
    import torch

    torch.set_num_threads(1)
    dtype = torch.bfloat16 if precision is Precision.BF16 else torch.float32
    layers = torch.nn.Sequential(
        *(torch.nn.Linear(rows, columns, bias=False, dtype=dtype) for rows, columns in SHAPES * LAYERS)
    )
    data = torch.from_numpy(_input(tokens)).to(dtype)

    def multiply() -> object:
        with torch.inference_mode():
            return layers(data)

    return multiply
