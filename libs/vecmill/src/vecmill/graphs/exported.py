"""Checks graphs that another program exported, and builds a second graph of the stages after them.

An exported graph is run unchanged. Its inputs are padded texts. Its output is either one vector for each
token, which the stages of the model's settings turn into the model's output, or finished:

    input_ids, attention_mask, token_type_ids, position_ids     (texts, longest)
    last_hidden_state, token_embeddings, logits of tokens       (texts, longest, width)
    sentence_embedding, logits of texts                         (texts, width)
    text_embeds of CLIP, pooler_output of SigLIP                (texts, width)

The graph of an encoder of pictures takes pixels that are resized and normalised:

    pixel_values                                                (pictures, 3, height, width), float32
    image_embeds of CLIP, pooler_output of SigLIP               (pictures, width)

The names are those of optimum-onnx 0.1 (`optimum/exporters/onnx/model_configs.py`).
"""

from collections.abc import Collection, Iterator, Mapping, Set
from pathlib import Path

import onnx
import onnx_ir as ir

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.graphs.batch_layout import IndexedLayout, LayoutOptions, RaggedLayout
from vecmill.graphs.exported_part import OF_PICTURES, OF_TEXTS, is_of_both, keep_part, write_part
from vecmill.graphs.external_data import check_external_data
from vecmill.graphs.finish import finish_graph
from vecmill.graphs.ops import Ops
from vecmill.models.description import ModelDescription
from vecmill.models.directory import find_file
from vecmill.models.exported import ExportedGraph
from vecmill.models.heads import HeadKind
from vecmill.models.stages import Pooling, Truncate
from vecmill.values.engine_plan import Precision
from vecmill.values.task import Task

KNOWN_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})
REQUIRED_INPUTS = frozenset({"input_ids", "attention_mask"})
# Of encoders of texts that read no padding: those of CLIP are causal, and those of SigLIP read all tokens.
TOWER_INPUTS = frozenset({"input_ids"})
PIXELS = "pixel_values"

_TOKEN_OUTPUTS: Mapping[str, int] = {"token_embeddings": 3, "last_hidden_state": 3}

# The keys of config.json that make a model have several adapters.
_ADAPTERS = ("lora_adaptations", "task_names")
_INTEGERS: Mapping[int, str] = {onnx.TensorProto.INT64: "int64", onnx.TensorProto.INT32: "int32"}

_QUANTIZED = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
        "QEmbedLayerNormalization",
        "QGemm",
        "QLinearMatMul",
        "QuantizeLinear",
    }
)
# Operators that scale their input by the largest number in the whole batch.
_SCALED_BY_BATCH = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul"})


def read_exported(description: ModelDescription) -> ExportedGraph:
    """Read the exported graph of a described model, without its weights.

    Raises `CorruptModel` if the file is broken, `UnsupportedModel` if inputs or outputs of the graph are not
    supported or do not fit the model's settings.
    """
    path, model = description.weights_files[0], load_exported(description)
    operators = {node.op_type for node in _all_nodes(model.graph)}
    inputs = _read_inputs(path, model.graph, description)
    output, is_per_token = _choose_output(path, model.graph, description)
    return ExportedGraph(
        inputs=inputs,
        output=output.name,
        width=_read_width(path, output, description),
        is_per_token=is_per_token,
        precision=_find_precision(model.graph, operators),
        # Tokens without keys may attend to padding.
        mixes_texts=not _SCALED_BY_BATCH.isdisjoint(operators) or description.has_keyless_tokens,
    )


def build_stages(
    description: ModelDescription,
    width: int,
    layout_class: type[RaggedLayout] | type[IndexedLayout] = RaggedLayout,
) -> ir.Model:
    """Build the graph of the stages after an exported graph.

    Inputs: those of the layout, and `hidden` (texts, longest, width), float32, whose padding is ignored. The
    outputs are those of `build_graph`.
    """
    op = Ops()
    layout = layout_class(op, LayoutOptions(has_heads=description.token_heads is not None))
    padded = op.input("hidden", ["texts", "longest", width], ir.DataType.FLOAT)
    x = layout.merge_heads(op.Unsqueeze(padded, op.constant([1])), width=width)
    return finish_graph(op, layout, description, x)


def load_exported(description: ModelDescription) -> onnx.ModelProto:
    """Load the exported graph of a described model, and check its tensors in other files, which stay there.

    Raises `CorruptModel` and `UnsupportedModel`.
    """
    path = description.weights_files[0]
    model = _load(path)
    check_external_data(path, model, description.weights_files)
    if _is_shared(description, model):
        if not description.normalize:
            raise UnsupportedModel(
                f"{path}: a graph of texts and pictures makes embeddings of length 1; this model has others. "
                "Serve its directory alone, or graphs of each: text_model.onnx and vision_model.onnx."
            )
        keep_part(model.graph, _name_side(description))
    return model


def write_used_graph(description: ModelDescription, folder: Path) -> Path:
    """Return the path of the graph to run: the exported one, or what is used of it, written into `folder`."""
    path = description.weights_files[0]
    if description.encoder.exported_output is None or not _is_shared(description, _load(path)):
        return path
    return write_part(load_exported(description), path, folder)


def _is_shared(description: ModelDescription, model: onnx.ModelProto) -> bool:
    """Return whether a graph is that of both encoders of a model of texts and pictures."""
    return description.encoder.exported_output is not None and is_of_both(model.graph)


def _name_side(description: ModelDescription) -> str:
    return OF_TEXTS if description.encoder.patch_values is None else OF_PICTURES


def _load(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:  # the parser's exceptions have no common base class
        raise CorruptModel(
            f"{path} is not a complete ONNX graph: {one_line(error)}. Export it again."
        ) from error


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _all_nodes(inner)


def _read_inputs(path: Path, graph: onnx.GraphProto, description: ModelDescription) -> Mapping[str, str]:
    stored = {tensor.name for tensor in graph.initializer}
    given = {value.name: value for value in graph.input if value.name not in stored}
    required, known = REQUIRED_INPUTS, KNOWN_INPUTS
    if description.encoder.patch_values is not None:
        required = known = frozenset({PIXELS})
    elif description.encoder.exported_output is not None:
        required, known = TOWER_INPUTS, REQUIRED_INPUTS
    _check_names(path, given, required, known)
    if PIXELS in known:
        return {PIXELS: _check_pixels(path, given[PIXELS], description.encoder.picture_side)}
    if description.encoder.adapters:
        keys = " and ".join(key for key in _ADAPTERS if key in description.config)
        raise UnsupportedModel(
            f"{path}: config.json has {keys}, and a graph takes no number of an adapter. Serve the "
            "weights instead."
        )
    reads_types = "token_type_ids" in given or description.encoder.token_types < 2
    if description.task in (Task.RERANK, Task.CLASSIFY) and not reads_types:
        raise UnsupportedModel(
            f"{path}: the graph does not take token_type_ids, by which the model distinguishes two texts. "
            "Export the model again with them."
        )
    if "position_ids" in given and description.encoder.shifts_positions:
        raise UnsupportedModel(
            f"{path}: the graph takes position_ids, which is not supported in a {description.architecture} "
            "model."
        )
    return {name: _check_input(path, value) for name, value in given.items()}


def _check_names(path: Path, given: Collection[str], required: Set[str], known: Set[str]) -> None:
    unknown, missing = sorted({*given} - known), sorted(required - {*given})
    if not unknown and not missing:
        return
    fault = f"takes {', '.join(unknown)}" if unknown else f"does not take {', '.join(missing)}"
    more = f", and optionally {' and '.join(sorted(known - required))}" if known - required else ""
    raise UnsupportedModel(
        f"{path}: the graph {fault}; supported are graphs that take {' and '.join(sorted(required))}{more}."
    )


def _check_pixels(path: Path, value: onnx.ValueInfoProto, size: int | None) -> str:
    """Return the dtype of the pixels, which must be of any number of pictures, each `size` pixels square."""
    kind = value.type.tensor_type
    fixed = [side.dim_value if side.HasField("dim_value") else None for side in kind.shape.dim]
    wanted = [None, 3, size, size]
    if (
        len(fixed) != 4
        or fixed[0] is not None
        or any(side not in (None, want) for side, want in zip(fixed, wanted, strict=True))
    ):
        raise UnsupportedModel(
            f"{path}: the input {value.name} has the shape {fixed}; it must take any number of pictures of "
            f"3 x {size} x {size} values. Export the model again with dynamic axes."
        )
    if kind.elem_type != onnx.TensorProto.FLOAT:
        name = onnx.TensorProto.DataType.Name(kind.elem_type)
        raise UnsupportedModel(f"{path}: the input {value.name} holds {name}; supported is FLOAT.")
    return "float32"


def _check_input(path: Path, value: onnx.ValueInfoProto) -> str:
    kind = value.type.tensor_type
    fixed = [dimension.dim_value for dimension in kind.shape.dim if dimension.HasField("dim_value")]
    if fixed or len(kind.shape.dim) != 2:
        raise UnsupportedModel(
            f"{path}: the input {value.name} has a fixed shape. Export the model again with dynamic axes."
        )
    if kind.elem_type not in _INTEGERS:
        raise UnsupportedModel(
            f"{path}: the input {value.name} holds {onnx.TensorProto.DataType.Name(kind.elem_type)}; "
            "supported are INT64 and INT32."
        )
    return _INTEGERS[kind.elem_type]


def _choose_output(
    path: Path, graph: onnx.GraphProto, description: ModelDescription
) -> tuple[onnx.ValueInfoProto, bool]:
    """Return the output to read, and whether it has a vector for each token."""
    outputs = {value.name: value for value in graph.output}
    wanted = _wanted_outputs(path, description)
    name = next((name for name in wanted if name in outputs), None)
    if name is None:
        raise UnsupportedModel(
            f"{path}: the graph's outputs are {', '.join(outputs)}; a model for {description.task} needs "
            f"{' or '.join(wanted)}."
        )
    value = outputs[name]
    if value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
        kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
        raise UnsupportedModel(f"{path}: the output {name} holds {kind}; supported is FLOAT.")
    if name == "sentence_embedding" or description.encoder.exported_output is not None:
        _check_finished(path, description, name)
    return value, wanted[name] == 3


def _wanted_outputs(path: Path, description: ModelDescription) -> Mapping[str, int]:
    """Return the suitable outputs, best first, and the number of axes of each."""
    if description.weighted_layers is not None:
        raise UnsupportedModel(
            f"{path}: WeightedLayerPooling reads all layers, of which an exported graph gives the last alone."
        )
    match description.task, description.head:
        case (Task.EMBED, None) if description.encoder.exported_output is not None:
            return {description.encoder.exported_output: 2, _name_side(description): 2}
        case (Task.EMBED, None):
            # Without modules.json the pooling is unknown, except to the graph.
            if find_file(description.directory, "modules.json") is None:
                return {"sentence_embedding": 2, **_TOKEN_OUTPUTS}
            return {**_TOKEN_OUTPUTS, "sentence_embedding": 2}
        case (Task.MULTI_VECTOR | Task.SPARSE, None):
            return _TOKEN_OUTPUTS
        case (Task.RERANK | Task.CLASSIFY, head) if head is not None and head.kind is HeadKind.SEQUENCE:
            return {"logits": 2}
        case (Task.CLASSIFY_TOKENS | Task.SPARSE, _):
            return {"logits": 3}
    raise UnsupportedModel(
        f"{path}: a model for {description.task} of this kind is not supported as an exported graph."
    )


def _check_finished(path: Path, description: ModelDescription, output: str) -> None:
    """Raise `UnsupportedModel` if stages of the model are missing from its finished embedding."""
    missing = description.graph_stages if description.pools_itself else ()
    if missing:
        raise UnsupportedModel(
            f"{path}: the only output of the graph is {output}, but the model has "
            f"{type(missing[0]).__name__} after it, which is not supported."
        )
    for stage in description.stages:
        if isinstance(stage, Truncate) or (isinstance(stage, Pooling) and not stage.include_prompt):
            raise UnsupportedModel(
                f"{path}: the only output of the graph is sentence_embedding, but the model's settings need "
                f"{'truncate_dim' if isinstance(stage, Truncate) else 'pooling without the prompt'}. Export "
                "the model again, with token_embeddings or last_hidden_state."
            )


def _read_width(path: Path, output: onnx.ValueInfoProto, description: ModelDescription) -> int:
    """Return the number of dimensions of the output. Raises `CorruptModel` if the settings say otherwise."""
    match description.task, output.name:
        case (_, "token_embeddings" | "last_hidden_state"):
            expected = description.encoder.output_size
        case (Task.SPARSE, _):
            expected = description.encoder.vocab_size
        case _:
            expected = description.dim
    *_, last = output.type.tensor_type.shape.dim or [onnx.TensorShapeProto.Dimension()]
    if last.HasField("dim_value") and last.dim_value != expected:
        raise CorruptModel(
            f"{path}: the output {output.name} has {last.dim_value} dimensions; the model's settings "
            f"say {expected}."
        )
    return expected


def _find_precision(graph: onnx.GraphProto, operators: set[str]) -> Precision:
    if not _QUANTIZED.isdisjoint(operators):
        return Precision.INT8
    is_half = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in graph.initializer)
    return Precision.FP16 if is_half else Precision.FP32
