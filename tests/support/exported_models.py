"""Models as ONNX graphs, exported by torch under the names that optimum gives inputs and outputs."""

import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
PER_TOKEN, PER_TEXT = {0: "batch_size", 1: "sequence_length"}, {0: "batch_size"}


def export_graph(
    directory: Path,
    graph: Path,
    class_name: str,
    *,
    inputs: Sequence[str] = INPUTS,
    finish: Callable[[Any, Any], dict[str, Any]] | None = None,
    shape: tuple[int, int] | None = None,
) -> Path:
    """Write the model at `directory`, of transformers' `class_name`, as `graph`.

    `finish` makes the outputs by name of the model's own output and the attention mask; without it there is
    one, `last_hidden_state` or `logits`. With a `shape`, texts and tokens, the graph takes that one alone.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        model_class = getattr(transformers, class_name)
        model = model_class.from_pretrained(directory, attn_implementation="eager").eval()
        texts, length = shape or (2, 7)
        example = {
            "input_ids": torch.arange(5, 5 + texts * length).reshape(texts, length) % 100,
            "attention_mask": torch.ones(texts, length, dtype=torch.int64),
            "token_type_ids": torch.zeros(texts, length, dtype=torch.int64),
        }
        named = _Named(model, inputs, finish or _plain)
        given = tuple(example[name] for name in inputs)
        outputs = named.name_outputs(*given)
        module = _as_module(named)
        graph.parent.mkdir(parents=True, exist_ok=True)
        torch.onnx.export(
            module,
            given,
            str(graph),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=None if shape else _free_axes(inputs, outputs),
            opset_version=18,
            dynamo=False,
        )
    return graph


def _free_axes(inputs: Sequence[str], outputs: dict[str, Any]) -> dict[str, dict[int, str]]:
    free = {name: PER_TOKEN if value.ndim == 3 else PER_TEXT for name, value in outputs.items()}
    return dict.fromkeys(inputs, PER_TOKEN) | free


def pool_mean(output: Any, mask: Any) -> dict[str, Any]:
    """Outputs as optimum writes those of sentence-transformers: rows of tokens, and their normalised mean."""
    import torch

    tokens = output.last_hidden_state
    weights = mask.unsqueeze(-1).to(tokens.dtype)
    mean = (tokens * weights).sum(1) / weights.sum(1)
    return {"token_embeddings": tokens, "sentence_embedding": torch.nn.functional.normalize(mean)}


def without_weights(directory: Path, copy: Path) -> Path:
    """A copy of a model directory that has no safetensors."""
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*.safetensors"))
    return copy


def quantize(graph: Path, quantized: Path, *, per_channel: bool = False) -> Path:
    """The 8-bit copy of a graph that optimum writes for avx512_vnni, by the same tool of ONNX Runtime."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(graph, quantized, weight_type=QuantType.QInt8, per_channel=per_channel)
    return quantized


def fuse(graph: Path, fused: Path, *, heads: int, hidden_size: int) -> Path:
    """The fused copy of a graph that optimum writes for O2, made by the same tool of ONNX Runtime."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.transformers import optimizer

        found = optimizer.optimize_model(
            str(graph), "bert", num_heads=heads, hidden_size=hidden_size, opt_level=1, use_gpu=False
        )
        assert found.is_fully_optimized()
        found.save_model_to_file(str(fused))
    return fused


class _Named:
    """A model that takes `inputs` by position and gives named outputs."""

    def __init__(
        self, model: Any, inputs: Sequence[str], finish: Callable[[Any, Any], dict[str, Any]]
    ) -> None:
        self.model, self._inputs, self._finish = model, inputs, finish

    def name_outputs(self, *given: Any) -> dict[str, Any]:
        named = dict(zip(self._inputs, given, strict=True))
        return self._finish(self.model(**named), named["attention_mask"])


def _plain(output: Any, mask: Any) -> dict[str, Any]:
    name = "logits" if "logits" in output else "last_hidden_state"
    return {name: output[name]}


def _as_module(named: _Named) -> Any:
    """What torch's exporter can trace."""
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = named.model

        def forward(self, *given: Any) -> tuple[Any, ...]:
            return tuple(named.name_outputs(*given).values())

    return Module().eval()
