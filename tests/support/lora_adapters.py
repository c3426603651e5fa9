"""LoRA adapters in the layout that peft writes, and the class of transformers that computes with one.

The reference never merges. Beside each adapted layer it adds the low-rank path of Hu et al., "LoRA" (2021),
section 4.1, h = W x + s B (A x), and for a table of embeddings the same with one-hot x. Names and shapes are
those of peft 0.19, `get_peft_model_state_dict` in `utils/save_and_load.py` and `tuners/lora/layer.py`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from vecmill.values.aliases import FloatArray

_STRENGTH = 0.4
_PREFIX = "base_model.model."
_TABLES = (".lora_embedding_A", ".lora_embedding_B")
_LINEARS = (".lora_A.weight", ".lora_B.weight")


@dataclass(frozen=True, slots=True)
class Lora:
    """The settings of an adapter. `targets` and `saved` are the last parts of the names of modules.

    `ranks` and `alphas` are by the ends of names, as in rank_pattern and alpha_pattern.
    """

    targets: tuple[str, ...]
    rank: int = 3
    alpha: float = 7
    ranks: Mapping[str, int] = field(default_factory=dict)
    alphas: Mapping[str, float] = field(default_factory=dict)
    is_rank_stabilized: bool = False
    saved: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def rank_of(self, module: str) -> int:
        return next((value for key, value in self.ranks.items() if module.endswith(key)), self.rank)

    def scaling(self, module: str, rank: int) -> float:
        alpha = next((value for key, value in self.alphas.items() if module.endswith(key)), self.alpha)
        return alpha / math.sqrt(rank) if self.is_rank_stabilized else alpha / rank


# The names of an adapter's tensors, and their shapes.
Shapes = Mapping[str, Sequence[int]]


def save_adapter(folder: Path, model: Any, lora: Lora, base: str) -> None:
    """Write an adapter for `model`, a class of transformers, and make that compute with the adapter."""
    shapes = list_tensors(model, lora)
    apply_adapter(model, shapes, lora)
    write_adapter(folder, shapes, lora, base)


def list_tensors(model: Any, lora: Lora) -> dict[str, list[int]]:
    """The shapes of the tensors of an adapter for `model`."""
    import torch

    shapes: dict[str, list[int]] = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in lora.saved:
            shapes |= {f"{name}.{part}": [*one.shape] for part, one in module.named_parameters()}
        if name.rpartition(".")[2] in lora.targets:
            (rows, columns), rank = module.weight.shape, lora.rank_of(name)
            if isinstance(module, torch.nn.Embedding):
                shapes |= {f"{name}{_TABLES[0]}": [rank, rows], f"{name}{_TABLES[1]}": [columns, rank]}
            else:
                shapes |= {f"{name}{_LINEARS[0]}": [rank, columns], f"{name}{_LINEARS[1]}": [rows, rank]}
    return shapes


def apply_adapter(model: Any, shapes: Shapes, lora: Lora) -> None:
    """Make `model` compute with the adapter."""
    import torch

    tensors = _draw(shapes, lora)
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        if name in tensors:
            parameter.data.copy_(torch.from_numpy(tensors[name]))
    for names, add in ((_TABLES, _table_path), (_LINEARS, _linear_path)):
        for name in (one.removesuffix(names[0]) for one in tensors if one.endswith(names[0])):
            low, high = (tensors[f"{name}{part}"] for part in names)
            modules[name].register_forward_hook(add(low, high, lora.scaling(name, lora.rank_of(name))))


def _draw(shapes: Shapes, lora: Lora) -> dict[str, FloatArray]:
    random = np.random.default_rng(lora.seed)
    return {
        name: (_STRENGTH * random.standard_normal(tuple(shape))).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_adapter(folder: Path, shapes: Shapes, lora: Lora, base: str) -> None:
    """Write the adapter's files."""
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(
        {_PREFIX + name: tensor for name, tensor in _draw(shapes, lora).items()},
        folder / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "adapter_config.json").write_text(json.dumps(write_config(lora, base)), encoding="utf-8")


def write_config(lora: Lora, base: str) -> dict[str, Any]:
    """The adapter_config.json, with the keys that peft 0.19 writes."""
    empty = ("auto_mapping", "revision", "layers_pattern", "layers_to_transform", "layer_replication")
    variants = ("alora_invocation_tokens", "arrow_config", "corda_config", "eva_config", "megatron_config")
    off = ("use_dora", "use_qalora", "lora_bias", "ensure_weight_tying", "fan_in_fan_out")
    return {
        **dict.fromkeys(
            (*empty, *variants, "exclude_modules", "target_parameters", "trainable_token_indices")
        ),
        **dict.fromkeys(off, False),
        "alpha_pattern": dict(lora.alphas),
        "base_model_name_or_path": base,
        "bias": "none",
        "inference_mode": True,
        "init_lora_weights": True,
        "loftq_config": {},
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.1,
        "megatron_core": "megatron.core",
        "modules_to_save": list(lora.saved) or None,
        "peft_type": "LORA",
        "peft_version": "0.19.0",
        "qalora_group_size": 16,
        "r": lora.rank,
        "rank_pattern": dict(lora.ranks),
        "target_modules": list(lora.targets),
        "task_type": "FEATURE_EXTRACTION",
        "use_rslora": lora.is_rank_stabilized,
        **lora.config,
    }


def change_tensors(folder: Path, change: Callable[[dict[str, FloatArray]], Mapping[str, FloatArray]]) -> None:
    """Write the tensors of an adapter again, changed."""
    path = folder / "adapter_model.safetensors"
    changed = change(safetensors.numpy.load_file(path))
    safetensors.numpy.save_file({name: np.ascontiguousarray(one) for name, one in changed.items()}, path)


Hook = Callable[[Any, tuple[Any, ...], Any], Any]


def _linear_path(low: FloatArray, high: FloatArray, scaling: float) -> Hook:
    import torch

    first, second = torch.from_numpy(low), torch.from_numpy(high)
    return lambda _, given, out: out + scaling * ((given[0] @ first.T) @ second.T)


def _table_path(low: FloatArray, high: FloatArray, scaling: float) -> Hook:
    import torch

    first, second = torch.from_numpy(low), torch.from_numpy(high)
    return lambda _, given, out: out + scaling * (first.T[given[0]] @ second.T)
