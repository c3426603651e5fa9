"""Tiny models of classes that have no graph here: transformers' own, and one whose code comes with it."""

import json
import textwrap
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from support.task_models import JITTER, LONGEST, load_tokenizer

# transformers' `model_type`, and what makes its configuration small.
SMALL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "roformer": {
            "hidden_size": 32,
            "embedding_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
        },
        "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
        "squeezebert": {
            "hidden_size": 32,
            "embedding_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
            "q_groups": 2,
            "k_groups": 2,
            "v_groups": 2,
            "intermediate_groups": 2,
            "output_groups": 2,
            "post_attention_groups": 1,
        },
    }
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


def save_library_model(folder: Path, model_type: str, auto_class: str = "AutoModel", **settings: Any) -> Path:
    """A model of a class of transformers, with its tokenizer; a plain directory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        tokenizer = load_tokenizer(folder.with_name(f"{folder.name}-tokenizer"))
        config = transformers.AutoConfig.for_model(
            model_type, vocab_size=len(tokenizer), **SMALL[model_type], **settings
        )
        torch.manual_seed(0)
        model = getattr(transformers, auto_class).from_config(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                around = 1.0 if name.lower().endswith("norm.weight") else 0.0
                parameter.copy_(around + JITTER * torch.randn_like(parameter))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def save_model_with_code(folder: Path) -> Path:
    """A model whose class is `own.py` in its directory; importing it writes `was_run` beside that."""
    import numpy as np
    import safetensors.numpy

    tokenizer = load_tokenizer(folder.with_name(f"{folder.name}-tokenizer"))
    tokenizer.save_pretrained(folder)
    mark = f"\nopen({str(folder / 'was_run')!r}, 'w').close()\n"
    (folder / "own.py").write_text(textwrap.dedent(_OWN_CODE) + mark, encoding="utf-8")
    random = np.random.default_rng(0)
    tensors = {
        "words.weight": random.normal(0, 1, (len(tokenizer), 32)).astype(np.float32),
        "mix.weight": random.normal(0, 0.2, (32, 32)).astype(np.float32),
        "mix.bias": random.normal(0, 0.2, 32).astype(np.float32),
    }
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "own",
        "architectures": ["OwnModel"],
        "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"},
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "max_position_embeddings": LONGEST,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
