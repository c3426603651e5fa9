"""Small models of transformers' classes that read texts of more than 512 tokens."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

VOCABULARY = 60
POSITIONS = 2048
WINDOW = 100
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
}
JINA: dict[str, Any] = {
    **SIZES,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
}
T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
}
GROUPED: dict[str, Any] = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
MIXED: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"]}
CASES: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType(
    {
        "modernbert": (
            "ModernBertModel",
            SIZES
            | MIXED
            | {"local_attention": WINDOW, "pad_token_id": 0}
            | dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1),
        ),
        "xlm_roberta": ("XLMRobertaModel", SIZES | {"type_vocab_size": 1, "max_position_embeddings": 2100}),
        "nomic_bert": ("NomicBertModel", SIZES),
        "gte": ("GteModel", SIZES),
        "qwen3": ("Qwen3Model", GROUPED),
        "qwen3_bidirectional": ("Qwen3Model", GROUPED | {"is_causal": False}),
        "eurobert": ("EuroBertModel", GROUPED | {"pad_token_id": 0}),
        "jina_embeddings_v3": ("JinaEmbeddingsV3Model", SIZES),
        "mistral": ("MistralModel", GROUPED | {"sliding_window": WINDOW}),
        "mistral_wide_window": ("MistralModel", GROUPED | {"sliding_window": 700}),
        "gemma3": ("Gemma3TextModel", GROUPED | MIXED | {"sliding_window": WINDOW}),
        "gemma3_bidirectional": (
            "Gemma3TextModel",
            GROUPED | MIXED | {"sliding_window": WINDOW, "use_bidirectional_attention": True},
        ),
        "ministral3": (
            "Ministral3Model",
            GROUPED
            | {
                "pad_token_id": 0,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 10_000.0,
                    "factor": 4.0,
                    "original_max_position_embeddings": 256,
                    "llama_4_scaling_beta": 0.1,
                },
            },
        ),
        "qwen3_moe": (
            "Qwen3MoeModel",
            GROUPED | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
        ),
        "lfm2": (
            "Lfm2Model",
            SIZES | {"num_key_value_heads": 2, "layer_types": ["full_attention", "conv"], "pad_token_id": 0},
        ),
        "lfm2_attention_last": (
            "Lfm2Model",
            SIZES | {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"], "pad_token_id": 0},
        ),
        "embedding_gemma2": (
            "EmbeddingGemma2TextModel",
            GROUPED
            | MIXED
            | {
                "sliding_window": WINDOW,
                "global_head_dim": 4,
                "hidden_size_per_layer_input": 16,
                "embedding_dim": 32,
            },
        ),
        "t5": ("T5EncoderModel", T5),
        "umt5": ("UMT5EncoderModel", T5),
        "rembert": ("RemBertModel", SIZES | {"input_embedding_size": 16, "output_embedding_size": 24}),
        "mpnet": ("MPNetModel", SIZES | {"max_position_embeddings": 2100}),
        "jina_bert": ("ReferenceJinaBertModel", JINA),
        "jina_bert_code": ("ReferenceJinaBertCodeModel", JINA | {"num_attention_heads": 2}),
        "deberta": (
            "DebertaV2Model",
            SIZES
            | {
                "position_buckets": 64,
                "max_relative_positions": -1,
                "relative_attention": True,
                "norm_rel_ebd": "layer_norm",
                "share_att_key": True,
                "pos_att_type": "p2c|c2p",
                "position_biased_input": False,
                "type_vocab_size": 0,
            },
        ),
    }
)
