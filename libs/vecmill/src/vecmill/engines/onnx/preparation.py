"""The preparation of a model for ONNX Runtime: its graph, optimised and stored with packed weights."""

import gc
import logging
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime

from vecmill.engines.base_weights import share_base_weights
from vecmill.engines.onnx.sessions import (
    open_built,
    session_options,
)
from vecmill.engines.prepared import (
    MODEL_FILE,
    NO_FOLDER,
    WEIGHTS_FILE,
    BuiltGraph,
    PreparedModel,
    fill_temporary,
    prepare_model,
)
from vecmill.engines.providers import ProviderChoice
from vecmill.engines.session_calls import (
    prepare_exported,
)
from vecmill.hardware.memory import return_freed_memory
from vecmill.hardware.processor import processor_name
from vecmill.hardware.system_calls import second_cache_bytes
from vecmill.models import prepared_name
from vecmill.models.weights import fp32_bytes
from vecmill.values.engine_plan import Precision

logger = logging.getLogger(__name__)


if TYPE_CHECKING:
    from vecmill.models import ModelDescription


# The optimisation that would make `Gemm` again of what `quantization.bf16_products` has split.
_GEMM = "MatMulAddFusion"


def prepare(
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
                description, folder, cache_dir, lambda base: prepare(base, precision, choice, cache_dir)
            )
        else:
            _fill_plain(description, folder)

    in_memory = None
    if choice.is_cpu and precision is Precision.FP32:
        in_memory = partial(build_in_memory, description)
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


def build_in_memory(description: "ModelDescription", *, keeps_16_bits: bool = False) -> PreparedModel:
    """Return a model whose graph ONNX Runtime optimises in memory, without large files."""
    if description.exported_graph is not None:
        used: list[Path] = []
        prepared = fill_temporary(
            lambda folder: prepare_exported(description, folder, lambda graph, _: used.append(graph))
        )
        prepared.built = BuiltGraph(used[0])
        return prepared
    from vecmill.graphs.external_data import serialize_graph

    graph = serialize_graph(_build_graph(description, keeps_16_bits=keeps_16_bits))
    gc.collect()
    built = BuiltGraph(graph.graph, graph.files, graph.published, keeps_16_bits)
    return PreparedModel(NO_FOLDER, built=built)


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
        store_optimized(BuiltGraph(made.graph, made.files), folder, in_bf16=precision is Precision.BF16)
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
    store_optimized(BuiltGraph(graph), folder)
    if graph.parent == folder:  # a part of the exported graph, which is stored now
        for path in folder.glob(f"{graph.name}*"):
            path.unlink()


def _copy(graph: Path, folder: Path) -> None:
    """Copy an exported graph to `folder`, with its weight files, whose names begin with the graph's name."""
    for path in graph.parent.glob(f"{graph.name}*"):
        shutil.copyfile(path, folder / (MODEL_FILE if path == graph else path.name))


def store_optimized(graph: BuiltGraph, folder: Path, *, in_bf16: bool = False) -> None:
    """Have ONNX Runtime optimise `graph`, and write it with packed weights to `folder`."""
    from vecmill.graphs.external_data import align_weights, drop_repeated_initializers

    options = session_options(threads=1, in_bf16=in_bf16)
    options.optimized_model_filepath = str(folder / MODEL_FILE)
    for key, value in (
        ("optimized_model_external_initializers_file_name", WEIGHTS_FILE),
        ("optimized_model_external_initializers_min_size_in_bytes", "1024"),
        ("save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(f"session.{key}", value)
    open_built(graph, options, left_out=(_GEMM,) if in_bf16 else ())
    align_weights(folder / MODEL_FILE, folder / WEIGHTS_FILE)
    drop_repeated_initializers(folder / MODEL_FILE)
