"""Tiny models of classes that have no graph here: transformers' own, and one whose code comes with it."""

import importlib
import inspect
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors.numpy
import tokenizers

from support.families import quiet_library
from support.references import draw_weights, make_directory
from support.task_models import JITTER, LONGEST, load_tokenizer
from vecmill.values.aliases import FloatArray

# What makes a configuration of any class small, where the class has a setting of the name.
_SIZES: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "embedding_size"), 32),
        **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
        **dict.fromkeys(("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"), 2),
        **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"), 4),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
        **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
        **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "d_ff", "dff", "d_inner"), 64),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 64),
        **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
        **dict.fromkeys(("head_dim", "d_kv", "d_head"), 8),
        **dict.fromkeys(("num_experts", "num_local_experts"), 4),
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "word_embed_proj_dim": 24,
        "rotary_dim": 4,
    }
)
# transformers' `model_type`, and what makes its configuration small besides.
SMALL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "bart": {},
        "bert-generation": {},
        "big_bird": {"block_size": 4, "num_random_blocks": 1},
        "bigbird_pegasus": {"block_size": 4, "num_random_blocks": 1},
        "biogpt": {},
        "blenderbot": {},
        "blenderbot-small": {},
        "bloom": {},
        "codegen": {},
        "cohere": {},
        "convbert": {},
        "ctrl": {},
        "deberta": {},
        "diffllama": {},
        "ernie4_5": {},
        "esm": {},
        "falcon": {},
        "flaubert": {"pad_index": 0},
        "fnet": {},
        "funnel": {"block_sizes": [1, 1], "architectures": ["FunnelModel"]},
        "glm": {},
        "gpt2": {},
        "gpt_bigcode": {},
        "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
        "gpt_neox": {},
        "gptj": {},
        "ibert": {},
        "layoutlm": {},
        "led": {
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
            "attention_window": [8, 8],
        },
        "lilt": {"hidden_size": 48, "channel_shrink_ratio": 4},
        "longformer": {"attention_window": [8, 8]},
        "longt5": {"local_radius": 4},
        "luke": {"entity_vocab_size": 10, "entity_emb_size": 32},
        "m2m_100": {},
        "mamba": {},
        "marian": {},
        "mbart": {},
        "mobilebert": {"intra_bottleneck_size": 32},
        "mpt": {},
        "mra": {},
        "mvp": {},
        "nystromformer": {"num_landmarks": 8, "segment_means_seq_len": 64},
        "olmo": {},
        "openai-gpt": {},
        "opt": {},
        "pegasus": {},
        "pegasus_x": {"block_size": 8, "num_global_tokens": 4},
        "persimmon": {},
        "phi": {},
        "plbart": {},
        "prophetnet": {},
        "reformer": {
            "axial_pos_shape": [8, 8],
            "axial_pos_embds_dim": [8, 24],
            "attention_head_size": 8,
            "feed_forward_size": 64,
            "attn_layers": ["local", "lsh"],
            "lsh_attn_chunk_length": 8,
            "local_attn_chunk_length": 8,
            "hash_seed": 1,
        },
        "roc_bert": {
            "pronunciation_vocab_size": 20,
            "shape_vocab_size": 20,
            "pronunciation_embed_dim": 8,
            "shape_embed_dim": 8,
        },
        "roformer": {},
        "rwkv": {"attention_hidden_size": 32},
        "splinter": {},
        "squeezebert": {
            **dict.fromkeys(("q_groups", "k_groups", "v_groups"), 2),
            **dict.fromkeys(("intermediate_groups", "output_groups"), 2),
            "post_attention_groups": 1,
        },
        "stablelm": {},
        "starcoder2": {},
        "switch_transformers": {},
        "xglm": {},
        "xlm": {"pad_index": 0},
        "xlnet": {},
        "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
        "yoso": {},
    }
)
# Those whose encoders cannot be loaded from the weights of encoder and decoder.
SAVED_ENCODERS: Mapping[str, str] = MappingProxyType(
    {
        "blenderbot": "BlenderbotEncoder",
        "blenderbot-small": "BlenderbotSmallEncoder",
        "m2m_100": "M2M100Encoder",
        "marian": "MarianEncoder",
        "pegasus": "PegasusEncoder",
        "pegasus_x": "PegasusXEncoder",
        "prophetnet": "ProphetNetEncoder",
    }
)
# Of very different classes, which are tried each time.
REPRESENTATIVE = (
    "big_bird",
    "flaubert",
    "funnel",
    "gpt2",
    "gpt_neo",
    "longformer",
    "longt5",
    "roformer",
    "rwkv",
    "xlm",
    "xmod",
)

_OWN_CODE = """
    import torch
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import BaseModelOutput


    class OwnConfig(PretrainedConfig):
        model_type = "own"

        def __init__(self, vocab_size=100, hidden_size=32, **others):
            super().__init__(**others)
            self.vocab_size, self.hidden_size = vocab_size, hidden_size


    class OwnModel(PreTrainedModel):
        config_class = OwnConfig

        def __init__(self, config):
            super().__init__(config)
            self.words = torch.nn.Embedding(config.vocab_size, config.hidden_size)
            self.mix = torch.nn.Linear(config.hidden_size, config.hidden_size)
            self.post_init()

        def forward(self, input_ids, attention_mask=None, token_type_ids=None, return_dict=True):
            hidden = torch.tanh(self.mix(self.words(input_ids))) * attention_mask[..., None]
            return BaseModelOutput(last_hidden_state=hidden.cumsum(1))
"""


def save_library_model(
    folder: Path,
    model_type: str,
    auto_class: str = "AutoModel",
    *,
    inputs: Sequence[str] = ("input_ids", "token_type_ids", "attention_mask"),
    **settings: Any,
) -> Path:
    """A model of a class of transformers, with a tokenizer that gives `inputs`; a plain directory."""

    def save(folder: Path) -> None:
        with quiet_library():
            tokenizer = load_tokenizer()
            tokenizer.model_input_names = list(inputs)
            model = make_small_model(model_type, auto_class, vocab_size=len(tokenizer), **settings)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)

    recipe = ["library model", model_type, SMALL[model_type], auto_class, list(inputs), settings]
    return make_directory(folder, recipe, save, _draw_around)


def _draw_around(name: str, shape: tuple[int, ...]) -> FloatArray:
    """The weights of norms, which are vectors, are around 1."""
    around = 1.0 if name.endswith(".weight") and len(shape) == 1 else 0.0
    drawn: FloatArray = np.float32(around) + draw_weights(0, JITTER)(f"{name}, around 0", shape)
    return drawn


def make_small_model(model_type: str, auto_class: str = "AutoModel", **settings: Any) -> Any:
    """A model of a class of transformers with random weights.

    It is an encoder, of a type whose encoder sentence-transformers saves alone.
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.AutoConfig.for_model(model_type, **{**_small_settings(model_type), **settings})
    torch.manual_seed(0)
    if auto_class == "AutoModel" and model_type in SAVED_ENCODERS:
        name = model_type.replace("-", "_")
        module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        model = getattr(module, SAVED_ENCODERS[model_type])(config)
    else:
        model = getattr(transformers, auto_class).from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if name.endswith(".weight") and parameter.dim() == 1 else 0.0
            parameter.copy_(around + JITTER * torch.randn_like(parameter))
    return model.eval()


def _small_settings(model_type: str) -> dict[str, Any]:
    """Settings that make a configuration of `model_type` small."""
    import transformers

    usual = transformers.AutoConfig.for_model(model_type)
    known = {*vars(usual), *inspect.signature(type(usual).__init__).parameters}
    sizes = {
        name: size
        for name, size in _SIZES.items()
        if name in known and not isinstance(getattr(usual, name, None), list | dict)
    }
    return {**sizes, **SMALL[model_type]}


def save_model_with_code(folder: Path) -> Path:
    """A model whose class is `own.py` in its directory; importing it writes `was_run` beside that."""
    draw = draw_weights(0, JITTER)
    make_directory(folder, "tokenizer of BERT", lambda folder: load_tokenizer().save_pretrained(folder), draw)
    vocabulary = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    mark = f"\nopen({str(folder / 'was_run')!r}, 'w').close()\n"
    (folder / "own.py").write_text(textwrap.dedent(_OWN_CODE) + mark, encoding="utf-8")
    random = np.random.default_rng(0)
    tensors = {
        "words.weight": random.normal(0, 1, (vocabulary, 32)).astype(np.float32),
        "mix.weight": random.normal(0, 0.2, (32, 32)).astype(np.float32),
        "mix.bias": random.normal(0, 0.2, 32).astype(np.float32),
    }
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "own",
        "architectures": ["OwnModel"],
        "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"},
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "max_position_embeddings": LONGEST,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
