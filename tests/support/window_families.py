"""Small models of transformers' classes with sliding windows that are shorter than the texts of the tests."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

WINDOW = 5
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
}
SPECIAL: dict[str, Any] = dict.fromkeys(
    ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0
)
GROUPED: dict[str, Any] = {**SIZES, "num_key_value_heads": 2, "pad_token_id": 0}
WINDOWED: dict[str, Any] = {**GROUPED, "sliding_window": WINDOW}
MIXED: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
QWEN: dict[str, Any] = {**WINDOWED, "use_sliding_window": True, "max_window_layers": 1}
GEMMA: dict[str, Any] = {**WINDOWED, **MIXED, "head_dim": 8, "query_pre_attn_scalar": 8}
BOTH_WAYS: dict[str, Any] = {"is_causal": False}

# Of a class whose attention has an implementation that torch computes (sdpa); the reference computes that.
FAMILIES: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType(
    {
        "modernbert": ("ModernBertModel", {**SIZES, **SPECIAL, **MIXED, "local_attention": 2 * WINDOW}),
        "mistral": ("MistralModel", WINDOWED),
        "mistral_both_ways": ("MistralModel", {**WINDOWED, **BOTH_WAYS}),
        "ministral": ("MinistralModel", {**WINDOWED, **MIXED, "head_dim": 8}),
        "phi3": ("Phi3Model", {**WINDOWED, "bos_token_id": 0, "eos_token_id": 0}),
        "qwen2": ("Qwen2Model", QWEN),
        "qwen2_both_ways": ("Qwen2Model", {**QWEN, **BOTH_WAYS}),
        "qwen3": ("Qwen3Model", {**QWEN, "head_dim": 8}),
        "gemma3": ("Gemma3TextModel", GEMMA),
        "gemma3_both_ways": ("Gemma3TextModel", {**GEMMA, "use_bidirectional_attention": True}),
        "olmo3": ("Olmo3Model", {**WINDOWED, **MIXED}),
        "exaone4": ("Exaone4Model", {**WINDOWED, **MIXED}),
        "smollm3": (
            "SmolLM3Model",
            {
                **WINDOWED,
                "use_sliding_window": True,
                "no_rope_layers": [1, 0, 1],
                "bos_token_id": 0,
                "eos_token_id": 0,
            },
        ),
    }
)
# Attention of Gemma 2 has a soft cap, so no other implementation than eager.
EAGER: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType({"gemma2": ("Gemma2Model", GEMMA)})
