"""Models that nobody has published: a family, with sizes, settings, stages and a head drawn by a seed.

Seeds that follow each other go through all families. The first round of them embeds, is wide enough for int8
to find matrices that are worth it, and has weights half as large for their width as the models of `families`.
Whatever follows may do anything that its family can, and may have weights so large that it is chaotic: what
16 or 8 bits round off is then all that is left.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from support.families import JITTER, quiet_library
from support.flash_tensors import name_as_flash
from support.library_outputs import store_recorded
from support.published import (
    IDENTITY,
    TANH,
    Module,
    Published,
    dense,
    pooling,
    respell,
    save_published,
)
from support.references import draw_weights, make_directory
from support.task_models import save_colbert
from support.tokenizers_of_class import make_tokenizer
from vecmill.directory_layouts import describe_model
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.values.aliases import FloatArray
from vecmill.verification.reference import StoredReference

HEADS = {
    Task.RERANK: "ForSequenceClassification",
    Task.CLASSIFY: "ForSequenceClassification",
    Task.CLASSIFY_TOKENS: "ForTokenClassification",
    Task.SPARSE: "ForMaskedLM",
}
# As `pooling_mode_...` calls them.
POOLINGS = (
    "cls_token",
    "mean_tokens",
    "max_tokens",
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)
LAST_TOKEN = ("lasttoken",)
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
SEPARATORS: dict[str, Any] = dict.fromkeys(
    ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0
)
JITTER_WIDTH = 32  # of the models of `families`
NEW_THETA = 160_000.0

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What every family has, under whatever names. `longest` are tokens of a text."""

    width: int
    heads: int
    layers: int
    inner: int
    vocabulary: int
    longest: int

    @classmethod
    def draw(cls, chance: random.Random, *, least_width: int) -> "Sizes":
        heads = chance.choice((2, 4, 8))
        head_width = chance.choice([one for one in (8, 16, 32) if least_width <= heads * one <= 128])
        width = heads * head_width
        return cls(
            width=width,
            heads=heads,
            layers=chance.randint(1, 4),
            inner=8 * round(width * chance.uniform(1.5, 4) / 8),
            vocabulary=chance.randint(800, 1500),
            longest=chance.randint(24, 90),
        )


Choose = Callable[[random.Random, Sizes], Settings]


@dataclass(frozen=True, slots=True)
class Draw:
    """How models of a family are drawn. `stem` begins the names of its classes in transformers.

    `architecture` is the family's, where families share one.

    `settings` are its own words for the sizes, and what else it has to choose. `tasks` are what it can do
    besides embedding; `poolings` are those that fit it.
    """

    stem: str
    tokenizer: str
    settings: Choose
    encoder: str = "Model"
    tasks: tuple[Task, ...] = ()
    poolings: tuple[str, ...] = POOLINGS
    frame: str | None = None
    instead: tuple[str, ...] = ()
    spelling: Settings = field(default_factory=dict)
    architecture: str | None = None
    rename: Callable[[Mapping[str, FloatArray]], dict[str, FloatArray]] | None = None


def _name_sizes(chance: random.Random, sizes: Sizes) -> Settings:
    """What most families say in the same words."""
    return {
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "max_position_embeddings": sizes.longest + chance.randint(0, 9),
        "vocab_size": sizes.vocabulary,
    }


def _draw_bert(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_name_sizes(chance, sizes), "hidden_act": chance.choice(ACTIVATIONS)}


def _draw_roberta(chance: random.Random, sizes: Sizes) -> Settings:
    """Positions begin after the padding's id."""
    return {
        **_draw_bert(chance, sizes),
        "max_position_embeddings": sizes.longest + 2,
        "type_vocab_size": 1,
        "pad_token_id": 1,
    }


def _draw_flash(chance: random.Random, sizes: Sizes) -> Settings:
    """Its activations are the two kinds of GELU."""
    return {**_draw_roberta(chance, sizes), "hidden_act": chance.choice(("gelu", "gelu_new"))}


def _draw_jina_embeddings(chance: random.Random, sizes: Sizes) -> Settings:
    theta = chance.choice((1e4, 2e4))
    return {**_draw_bert(chance, sizes), "type_vocab_size": 1, "rope_parameters": {"rope_theta": theta}}


def _draw_albert(chance: random.Random, sizes: Sizes) -> Settings:
    groups = chance.randint(1, sizes.layers)
    return {
        **_draw_bert(chance, sizes),
        "embedding_size": chance.choice((16, sizes.width)),
        "num_hidden_groups": groups,
        "inner_group_num": chance.randint(1, 2),
    }


def _draw_electra(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_draw_bert(chance, sizes), "embedding_size": chance.choice((16, sizes.width))}


def _draw_rembert(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_draw_bert(chance, sizes),
        "input_embedding_size": chance.choice((16, sizes.width)),
        "output_embedding_size": chance.choice((24, sizes.width)),
    }


def _draw_distilbert(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_unnamed(),
        "max_position_embeddings": sizes.longest + chance.randint(0, 9),
        "vocab_size": sizes.vocabulary,
        "dim": sizes.width,
        "hidden_dim": sizes.inner,
        "n_layers": sizes.layers,
        "n_heads": sizes.heads,
        "activation": chance.choice(ACTIVATIONS),
    }


def _draw_deberta(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_draw_bert(chance, sizes),
        "relative_attention": True,
        "position_buckets": chance.choice((-1, 4, 8)),
        "max_relative_positions": chance.choice((12, 40)),
        "norm_rel_ebd": chance.choice(("none", "layer_norm")),
        "share_att_key": chance.random() < 0.5,
        "pos_att_type": chance.choice((["p2c"], ["c2p"], ["p2c", "c2p"])),
        "position_biased_input": chance.random() < 0.5,
        "type_vocab_size": chance.choice((0, 2)),
        "conv_kernel_size": chance.choice((0, 0, 3)),
    }


def _draw_modernbert(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_name_sizes(chance, sizes),
        **SEPARATORS,
        "num_hidden_layers": sizes.layers + 1,
        "local_attention": chance.randint(4, 12),
        "global_attn_every_n_layers": chance.randint(1, 3),
        "hidden_activation": chance.choice(ACTIVATIONS),
        "mlp_bias": chance.random() < 0.5,
        "classifier_pooling": chance.choice(("cls", "mean")),
    }


def _draw_rotary_bert(chance: random.Random, sizes: Sizes) -> Settings:
    """Two types of tokens, which the tokenizer gives to the two texts of a pair."""
    theta = chance.choice((1e3, 1e4, 1.6e5))
    return {**_draw_bert(chance, sizes), "type_vocab_size": 2, "rope_parameters": {"rope_theta": theta}}


def _draw_jina(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_name_sizes(chance, sizes),
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "alibi",
        "feed_forward_type": chance.choice(("geglu", "reglu")),
    }


def _draw_experts(chance: random.Random, sizes: Sizes) -> Settings:
    """Under the published keys alone; at least one layer has experts.

    Tokens pass through all of them. If some were chosen, rounding to 16 or 8 bits would choose others.
    """
    experts = chance.randint(2, 8)
    return {
        **_unnamed(),
        "vocab_size": sizes.vocabulary,
        "type_vocab_size": 1,
        "n_embd": sizes.width,
        "n_inner": sizes.inner,
        "n_layer": sizes.layers + 1,
        "n_head": sizes.heads,
        "n_positions": sizes.longest + chance.randint(0, 9),
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu",
        **{key: chance.random() < 0.8 for key in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")},
        "rotary_emb_base": chance.choice((1_000, 10_000)),
        "rotary_emb_fraction": 1.0,
        "num_experts": experts,
        "moe_top_k": experts,
        "moe_every_n_layers": chance.randint(2, 3) if sizes.layers > 1 else 2,
        "moe_normalize_expert_weights": False,
    }


def _draw_new(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_draw_bert(chance, sizes), "rope_parameters": {"rope_theta": NEW_THETA}}


def _draw_decoder(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_draw_bert(chance, sizes),
        "num_key_value_heads": chance.choice((1, 2, sizes.heads)),
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def _draw_qwen2(chance: random.Random, sizes: Sizes) -> Settings:
    window = {"use_sliding_window": True, "sliding_window": chance.randint(4, 30), "max_window_layers": 1}
    return {**_draw_decoder(chance, sizes), **chance.choice(({}, window))}


def _draw_qwen3(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_draw_qwen2(chance, sizes),
        "head_dim": chance.choice((8, 16)),
        "attention_bias": chance.random() < 0.5,
    }


def _draw_llama(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_draw_decoder(chance, sizes),
        "is_causal": chance.random() < 0.5,
        "attention_bias": chance.random() < 0.5,
        "mlp_bias": chance.random() < 0.5,
    }


def _draw_both_ways(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_draw_llama(chance, sizes), "is_causal": False}


def _draw_pplx(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_draw_decoder(chance, sizes), "head_dim": 16, "is_causal": False}


def _draw_mistral(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_draw_decoder(chance, sizes), "sliding_window": chance.choice((None, chance.randint(4, 30)))}


def _draw_gemma_1(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_draw_decoder(chance, sizes), "head_dim": chance.choice((8, 16)), "hidden_act": "gelu"}


def _draw_gemma_2(chance: random.Random, sizes: Sizes) -> Settings:
    names = ("use_bidirectional_attention", "layer_types")
    gemma = {key: value for key, value in _draw_gemma(chance, sizes).items() if key not in names}
    return {**gemma, "attn_logit_softcapping": chance.choice((None, 1.0, 20.0))}


def _draw_gemma(chance: random.Random, sizes: Sizes) -> Settings:
    kinds = ("sliding_attention", "full_attention")
    return {
        **_draw_decoder(chance, sizes),
        "head_dim": 16,
        "query_pre_attn_scalar": chance.choice((16, 64)),
        "sliding_window": chance.randint(4, 30),
        "layer_types": [chance.choice(kinds) for _ in range(sizes.layers)],
        "use_bidirectional_attention": chance.random() < 0.7,
        "hidden_activation": chance.choice(ACTIVATIONS),
    }


def _draw_t5(chance: random.Random, sizes: Sizes) -> Settings:
    return {
        **_unnamed(),
        "vocab_size": sizes.vocabulary,
        "d_model": sizes.width,
        "d_kv": sizes.width // sizes.heads,
        "d_ff": sizes.inner,
        "num_layers": sizes.layers,
        "num_heads": sizes.heads,
        "relative_attention_num_buckets": chance.choice((8, 32)),
        "relative_attention_max_distance": chance.choice((20, 128)),
        "feed_forward_proj": chance.choice(("relu", "gelu", "gated-gelu", "gated-silu")),
    }


def _draw_t5gemma(chance: random.Random, sizes: Sizes) -> Settings:
    """An encoder by itself. A class of transformers asks for the settings of a decoder too."""
    gemma = {**_draw_gemma_2(chance, sizes), "hidden_act": None}
    encoder = {name: value for name, value in gemma.items() if value is not None}
    both = {"encoder": encoder, "decoder": encoder}
    return {**_unnamed(), **both, "vocab_size": sizes.vocabulary, "is_encoder_decoder": False}


def _draw_ernie(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_draw_bert(chance, sizes), "use_task_id": chance.random() < 0.5}


def _draw_eurobert(chance: random.Random, sizes: Sizes) -> Settings:
    pooling = chance.choice(("bos", "mean", "late"))
    return {**_draw_decoder(chance, sizes), "mlp_bias": chance.random() < 0.5, "classifier_pooling": pooling}


def _draw_granite(chance: random.Random, sizes: Sizes) -> Settings:
    """Scores of about the size that they have in other families."""
    return {
        **_draw_decoder(chance, sizes),
        "embedding_multiplier": chance.uniform(0.5, 2.0),
        "residual_multiplier": chance.uniform(0.2, 1.0),
        "attention_multiplier": chance.uniform(0.5, 1.1) * (sizes.width // sizes.heads) ** -0.5,
    }


def _draw_windows(chance: random.Random, sizes: Sizes) -> Settings:
    kinds = ("sliding_attention", "full_attention")
    return {
        **_draw_decoder(chance, sizes),
        "sliding_window": chance.randint(4, 30),
        "layer_types": [chance.choice(kinds) for _ in range(sizes.layers)],
    }


def _draw_ministral(chance: random.Random, sizes: Sizes) -> Settings:
    return {**_draw_windows(chance, sizes), "head_dim": 16}


def _draw_ministral_3(chance: random.Random, sizes: Sizes) -> Settings:
    rope = {
        "rope_type": "yarn",
        "rope_theta": chance.choice((1e4, 1e6)),
        "factor": chance.choice((2.0, 16.0)),
        "original_max_position_embeddings": chance.choice((8, 16)),
        "llama_4_scaling_beta": chance.choice((0.1, 0.5)),
    }
    window = {"sliding_window": chance.choice((None, chance.randint(4, 30)))}
    both = {"is_causal": chance.random() < 0.5}
    return {**_draw_decoder(chance, sizes), "head_dim": 16, "rope_parameters": rope, **window, **both}


def _draw_qwen_moe(chance: random.Random, sizes: Sizes) -> Settings:
    """Tokens pass through all experts: rounding to 16 or 8 bits would choose others."""
    experts = chance.randint(2, 6)
    return {
        **_draw_decoder(chance, sizes),
        "head_dim": chance.choice((8, 16)),
        "attention_bias": chance.random() < 0.5,
        "num_experts": experts,
        "num_experts_per_tok": experts,
        "moe_intermediate_size": 8 * chance.randint(2, 6),
        "norm_topk_prob": chance.random() < 0.5,
        "decoder_sparse_step": chance.choice((1, 1, 2)),
    }


def _draw_lfm2(chance: random.Random, sizes: Sizes) -> Settings:
    kinds = ["full_attention", *(chance.choice(("conv", "full_attention")) for _ in range(sizes.layers))]
    chance.shuffle(kinds)
    return {
        **_draw_decoder(chance, sizes),
        "num_hidden_layers": sizes.layers + 1,
        "layer_types": kinds,
        "conv_L_cache": chance.randint(1, 5),
        "conv_bias": chance.random() < 0.5,
        "block_multiple_of": 8,
    }


def _draw_embedding_gemma_2(chance: random.Random, sizes: Sizes) -> Settings:
    kinds = ("sliding_attention", "full_attention")
    return {
        **_draw_decoder(chance, sizes),
        "head_dim": chance.choice((8, 16)),
        "global_head_dim": chance.choice((8, 32)),
        "num_global_key_value_heads": 1,
        "sliding_window": chance.randint(4, 30),
        "layer_types": [*(chance.choice(kinds) for _ in range(sizes.layers - 1)), "full_attention"],
        "hidden_size_per_layer_input": chance.choice((16, 24)),
        "embedding_dim": sizes.width,
        "hidden_activation": chance.choice(ACTIVATIONS),
    }


def _draw_seed_oss(chance: random.Random, sizes: Sizes) -> Settings:
    flags = ("attention_bias", "attention_out_bias", "mlp_bias")
    return {**_draw_decoder(chance, sizes), "head_dim": 16, **{flag: chance.random() < 0.5 for flag in flags}}


def _draw_smollm3(chance: random.Random, sizes: Sizes) -> Settings:
    rotates = [chance.randint(0, 1) for _ in range(sizes.layers)]
    return {**_draw_decoder(chance, sizes), "no_rope_layers": rotates}


def _draw_table(chance: random.Random, sizes: Sizes) -> Settings:
    raise AssertionError("a table of rows has no config.json")


def _unnamed() -> Settings:
    """`Published` says these unless they are taken back."""
    return dict.fromkeys(
        (
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "max_position_embeddings",
        )
    )


_ALL = tuple(HEADS)
_MULTI = (*HEADS, Task.MULTI_VECTOR)
_NEW: Settings = {
    "model_type": "new",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "rope_theta": NEW_THETA,
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
}
_JINA: Settings = {"model_type": "bert"} | {
    "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"}
}
_EXPERTS: Settings = {"model_type": "nomic_bert"} | {
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"}
}
_FLASH: Settings = {
    "position_embedding_type": "absolute",
    "use_flash_attn": True,
    "auto_map": {"AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig"},
}
_BIDIREC: Settings = {
    "model_type": "llama_bidirec",
    "pooling": "avg",
    "auto_map": {"AutoModel": "llama_bidirectional_model.LlamaBidirectionalModel"},
}
_PPLX: Settings = {
    "model_type": "bidirectional_pplx_qwen3",
    "use_bidirectional_attention": True,
    "auto_map": {"AutoModel": "modeling.PPLXQwen3Model"},
}
_LFM2: Settings = {
    "model_type": "lfm2",
    "architectures": ["Lfm2BidirectionalModel"],
    "auto_map": {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"},
}
_MINISTRAL: Settings = {"model_type": "ministral3_bidirec"} | {
    "auto_map": {"AutoModel": "model.Ministral3BidirectionalModel"}
}
DRAWS: Mapping[str, Draw] = {
    "albert": Draw("Albert", "AlbertTokenizer", _draw_albert, tasks=_ALL),
    "bert": Draw("Bert", "BertTokenizer", _draw_bert, tasks=_MULTI),
    "bidirectional_pplx_qwen3": Draw(
        "Qwen3",
        "Qwen2Tokenizer",
        _draw_pplx,
        instead=("is_causal",),
        spelling=_PPLX,
        frame="$A <|endoftext|>",
    ),
    "camembert": Draw("Camembert", "CamembertTokenizer", _draw_roberta, tasks=_ALL),
    "data2vec-text": Draw("Data2VecText", "RobertaTokenizer", _draw_roberta, tasks=_ALL),
    "deberta-v2": Draw("DebertaV2", "DebertaV2Tokenizer", _draw_deberta, tasks=_ALL),
    "distilbert": Draw("DistilBert", "DistilBertTokenizer", _draw_distilbert, tasks=_MULTI),
    "electra": Draw("Electra", "BertTokenizer", _draw_electra, tasks=_ALL),
    "embedding_gemma2_text": Draw(
        "EmbeddingGemma2Text", "GemmaTokenizer", _draw_embedding_gemma_2, frame="<bos> $A <eos>"
    ),
    "ernie": Draw("Ernie", "BertTokenizer", _draw_ernie, tasks=_ALL),
    "eurobert": Draw("EuroBert", "byte_level", _draw_eurobert, tasks=_ALL),
    "exaone4": Draw("Exaone4", "byte_level", _draw_windows, poolings=LAST_TOKEN),
    "gemma": Draw("Gemma", "GemmaTokenizer", _draw_gemma_1, poolings=LAST_TOKEN, frame="<bos> $A <eos>"),
    "gemma2": Draw("Gemma2", "GemmaTokenizer", _draw_gemma_2, poolings=LAST_TOKEN, frame="<bos> $A <eos>"),
    "gemma3_text": Draw("Gemma3Text", "GemmaTokenizer", _draw_gemma, frame="<bos> $A <eos>"),
    "granite": Draw("Granite", "byte_level", _draw_granite, poolings=LAST_TOKEN),
    "gte": Draw("Gte", "BertTokenizer", _draw_rotary_bert, tasks=_ALL),
    "jina_bert": Draw("ReferenceJinaBert", "BertTokenizer", _draw_jina, tasks=_ALL, spelling=_JINA),
    "jina_bert_code": Draw(
        "ReferenceJinaBertCode",
        "RobertaTokenizer",
        _draw_jina,
        spelling=_JINA,
        architecture="jina_bert",
    ),
    "jina_embeddings_v3": Draw("JinaEmbeddingsV3", "XLMRobertaTokenizer", _draw_jina_embeddings, tasks=_ALL),
    "lfm2": Draw("Lfm2", "byte_level", _draw_lfm2, poolings=LAST_TOKEN, tasks=(Task.MULTI_VECTOR,)),
    "lfm2_bidirectional": Draw(
        "ReferenceLfm2Bidirectional",
        "byte_level",
        _draw_lfm2,
        instead=("is_causal",),
        spelling=_LFM2,
        architecture="lfm2",
    ),
    "llama": Draw("Llama", "byte_fallback", _draw_llama, poolings=LAST_TOKEN),
    "llama_bidirec": Draw(
        "Llama", "byte_fallback", _draw_both_ways, instead=("is_causal",), spelling=_BIDIREC
    ),
    "megatron-bert": Draw("MegatronBert", "BertTokenizer", _draw_bert, tasks=_ALL),
    "ministral": Draw("Ministral", "byte_fallback", _draw_ministral, poolings=LAST_TOKEN),
    "ministral3": Draw("Ministral3", "byte_level", _draw_ministral_3, poolings=LAST_TOKEN),
    "ministral3_bidirec": Draw(
        "Ministral3",
        "byte_level",
        lambda chance, sizes: {**_draw_ministral_3(chance, sizes), "is_causal": False},
        instead=("is_causal",),
        spelling=_MINISTRAL,
    ),
    "mistral": Draw("Mistral", "byte_fallback", _draw_mistral, poolings=LAST_TOKEN),
    "modernbert": Draw("ModernBert", "byte_level", _draw_modernbert, tasks=_MULTI),
    "mpnet": Draw("MPNet", "MPNetTokenizer", _draw_roberta, tasks=_ALL),
    "mt5": Draw("MT5", "T5Tokenizer", _draw_t5, encoder="EncoderModel"),
    "new": Draw("Gte", "BertTokenizer", _draw_new, instead=("rope_parameters",), spelling=_NEW),
    "nomic_bert": Draw("NomicBert", "BertTokenizer", _draw_rotary_bert, tasks=_ALL),
    "nomic_bert_experts": Draw(
        "ReferenceNomicMixture",
        "XLMRobertaTokenizer",
        _draw_experts,
        spelling=_EXPERTS,
        architecture="nomic_bert",
    ),
    "olmo2": Draw("Olmo2", "byte_level", _draw_decoder, poolings=LAST_TOKEN),
    "olmo3": Draw("Olmo3", "byte_level", _draw_windows, poolings=LAST_TOKEN),
    "phi3": Draw("Phi3", "byte_fallback", _draw_decoder, poolings=LAST_TOKEN),
    "qwen2": Draw("Qwen2", "Qwen2Tokenizer", _draw_qwen2, poolings=LAST_TOKEN, frame="$A <|endoftext|>"),
    "qwen3": Draw("Qwen3", "Qwen2Tokenizer", _draw_qwen3, poolings=LAST_TOKEN, frame="$A <|endoftext|>"),
    "qwen3_moe": Draw(
        "Qwen3Moe", "Qwen2Tokenizer", _draw_qwen_moe, poolings=LAST_TOKEN, frame="$A <|endoftext|>"
    ),
    "rembert": Draw("RemBert", "RemBertTokenizer", _draw_rembert, tasks=_ALL),
    "roberta": Draw("Roberta", "RobertaTokenizer", _draw_roberta, tasks=_ALL),
    "roberta-prelayernorm": Draw("RobertaPreLayerNorm", "RobertaTokenizer", _draw_roberta, tasks=_ALL),
    "seed_oss": Draw("SeedOss", "byte_level", _draw_seed_oss, poolings=LAST_TOKEN),
    "smollm3": Draw("SmolLM3", "byte_level", _draw_smollm3, poolings=LAST_TOKEN),
    "static": Draw("", "BertTokenizer", _draw_table),
    "t5": Draw("T5", "T5Tokenizer", _draw_t5, encoder="EncoderModel"),
    "t5gemma": Draw(
        "T5Gemma", "GemmaTokenizer", _draw_t5gemma, encoder="EncoderModel", frame="<bos> $A <eos>"
    ),
    "umt5": Draw("UMT5", "unigram", _draw_t5, encoder="EncoderModel"),
    "xlm-roberta-flash": Draw(
        "XLMRoberta",
        "XLMRobertaTokenizer",
        _draw_flash,
        tasks=_ALL,
        instead=("model_type",),
        spelling=_FLASH,
        rename=name_as_flash,
    ),
    "xlm-roberta": Draw("XLMRoberta", "XLMRobertaTokenizer", _draw_roberta, tasks=_ALL),
    "xlm-roberta-xl": Draw("XLMRobertaXL", "XLMRobertaTokenizer", _draw_roberta, tasks=_ALL),
}


@dataclass(frozen=True, slots=True)
class RandomModel:
    """What a seed draws."""

    seed: int
    family: str
    task: Task
    sizes: Sizes
    jitter: float
    settings: Settings
    modules: tuple[Module, ...]

    @classmethod
    def draw(cls, seed: int) -> "RandomModel":
        chance = random.Random(seed)
        families = sorted(DRAWS)
        family = families[seed % len(families)]
        draw = DRAWS[family]
        is_first = seed < len(families)
        sizes = Sizes.draw(chance, least_width=64 if is_first else 16)
        task = Task.EMBED if is_first else chance.choice((Task.EMBED, Task.EMBED, *draw.tasks))
        even = JITTER * math.sqrt(JITTER_WIDTH / sizes.width)
        jitter = even / 2 if is_first else chance.choice((even / 2, even, JITTER))
        settings = {} if family == "static" else draw.settings(chance, sizes)
        modules = _draw_modules(chance, sizes.width, draw.poolings)
        return cls(seed, family, task, sizes, jitter, settings, modules)

    @classmethod
    def find_seed(cls, family: str, task: Task) -> int:
        """The first seed that draws a model of `family` for `task`, and expands queries if it has any."""
        drawn = map(cls.draw, count(sorted(DRAWS).index(family), len(DRAWS)))
        expands = task is Task.MULTI_VECTOR
        return next(
            one.seed for one in drawn if one.task is task and (not expands or one.expansion is not None)
        )

    @property
    def architecture(self) -> str:
        return DRAWS[self.family].architecture or self.family

    @property
    def expansion(self) -> Settings | None:
        """How a multi-vector model expands its queries: up to several windows, or not at all."""
        chance = random.Random(self.seed)
        length, strategy = chance.randint(8, self.sizes.longest), chance.choice(("fixed", "min"))
        expansion = {"strategy": strategy, "length": length, "attend": chance.random() < 0.25}
        return expansion if chance.random() < 0.75 else None

    def __str__(self) -> str:
        sizes = self.sizes
        return (
            f"seed {self.seed}: {self.family}, {self.task}, {sizes.layers} layers of {sizes.width} "
            f"({sizes.heads} heads, {sizes.inner} inside, jitter {self.jitter:.2f}), "
            f"up to {sizes.longest} tokens, "
            f"{', '.join(kind for kind, _, _ in self.modules)}, {self.settings}"
            f"{f', {self.expansion}' if self.task is Task.MULTI_VECTOR else ''}"
        )

    def save(self, folder: Path, texts: Sequence[str]) -> tuple[ModelDescription, StoredReference]:
        """Write the model into `folder`; what its own library answers where it is checked with `texts`."""
        from support import own_code_models  # noqa: F401  # its classes, which the library finds by their types

        self.write(folder)
        asked = self.task if self.task is Task.SPARSE else None  # as a masked language model it embeds
        description = describe_model(locate_model(folder), asked)
        assert description.task is self.task
        reference = store_recorded(description, texts, folder.with_name("cache"))
        if self.respell(folder):
            description = describe_model(locate_model(folder), asked)
        assert description.architecture == self.architecture
        return description, reference

    def write(self, folder: Path) -> None:
        """Write the model into `folder`, as its own library reads it."""
        if self.family == "static":
            self._save_table(folder)
        elif self.task is Task.MULTI_VECTOR:
            encoder = folder.with_name("encoder")
            save_published(encoder, self._publish(None), seed=self.seed, jitter=self.jitter)
            save_colbert(folder, encoder, self.expansion, width=self.sizes.width)
        else:
            modules = self.modules if self.task is Task.EMBED else None
            save_published(folder, self._publish(modules), seed=self.seed, jitter=self.jitter)

    def respell(self, folder: Path) -> bool:
        """Give the files the publisher's spelling, if it has one that the library cannot read.

        Return whether it has.
        """
        if DRAWS[self.family].spelling:
            respell(folder, self._publish(None))
        return bool(DRAWS[self.family].spelling)

    def _publish(self, modules: tuple[Module, ...] | None) -> Published:
        draw = DRAWS[self.family]
        labels = {Task.RERANK: {"num_labels": 1}, Task.CLASSIFY: {"num_labels": 3}}
        return Published(
            draw.stem + HEADS.get(self.task, draw.encoder),
            draw.tokenizer,
            modules,
            {**self.settings, **labels.get(self.task, {})},
            tokenizer_config={"model_max_length": self.sizes.longest},
            sentence=None if modules is None else {"max_seq_length": self.sizes.longest},
            spelling=draw.spelling,
            rename=draw.rename,
            instead=draw.instead,
            frame=draw.frame,
        )

    def _save_table(self, folder: Path) -> None:
        make_directory(
            folder,
            ["table", self.family, self.sizes.width],
            self._save_drawn_table,
            draw_weights(self.seed, 1.0),
        )

    def _save_drawn_table(self, folder: Path) -> None:
        with quiet_library():
            from sentence_transformers import SentenceTransformer
            from sentence_transformers.sentence_transformer.modules import StaticEmbedding

            tokenizer = make_tokenizer(DRAWS[self.family].tokenizer)
            table = StaticEmbedding(tokenizer._tokenizer, embedding_dim=self.sizes.width)
            SentenceTransformer(modules=[table], device="cpu").save_pretrained(str(folder))


def _draw_modules(chance: random.Random, width: int, poolings: tuple[str, ...]) -> tuple[Module, ...]:
    """Pooling in one way or two, perhaps a product, perhaps unit length."""
    ways = chance.sample(poolings, k=min(len(poolings), chance.choice((1, 1, 1, 2))))
    flags = {f"pooling_mode_{way}": True for way in ways}
    modules = [pooling("", word_embedding_dimension=width, **flags)]
    if chance.random() < 0.4:
        bias, activation = chance.random() < 0.5, chance.choice((IDENTITY, TANH))
        modules.append(
            dense("2_Dense", width * len(ways), chance.choice((32, 80)), bias=bias, activation=activation)
        )
    if chance.random() < 0.6:
        modules.append(("Normalize", f"{len(modules) + 1}_Normalize", {}))
    return tuple(modules)
