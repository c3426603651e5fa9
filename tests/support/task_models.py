"""Tiny models of transformers' classes with heads, saved as their users save them, and jittered."""

import warnings
from pathlib import Path
from typing import Any

from support.tiny_models import TinyBert, save_tiny_bert

JITTER = 0.3
LABEL_JITTER = 1.0  # so that no label wins everywhere
LONGEST = 40

# What a shared tokenizer's vocabulary and these sizes make; all else is BERT's default.
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def load_tokenizer(folder: Path, **settings: Any) -> Any:
    """A BERT tokenizer of real words, as transformers has it; at most `LONGEST` tokens."""
    import tokenizers
    import transformers

    library = tokenizers.Tokenizer.from_file(str(save_tiny_bert(folder, TinyBert()) / "tokenizer.json"))
    library.no_truncation()
    library.no_padding()
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=library,
        model_max_length=LONGEST,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **special,
        **settings,
    )


def save_task_model(folder: Path, class_name: str, *, seed: int = 0, **settings: Any) -> Path:
    """A model of transformers' BERT class `class_name`, with `settings` in its config, and its tokenizer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        tokenizer = load_tokenizer(folder.with_name(f"{folder.name}-tokenizer"))
        config = transformers.BertConfig(vocab_size=len(tokenizer), **SIZES, **settings)
        torch.manual_seed(seed)
        model = getattr(transformers, class_name)(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                around = 1.0 if "LayerNorm.weight" in name else 0.0
                spread = LABEL_JITTER if name == "classifier.weight" else JITTER
                parameter.copy_(around + spread * torch.randn_like(parameter))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder
