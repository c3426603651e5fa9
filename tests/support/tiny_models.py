"""Small but whole sentence-transformers models, written without torch.

Weights are random and far from their usual start, so that a wrong mask, position or activation
shows in the rows.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import tokenizers

from vecmill.values.sample_texts import prose_words

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

Tensors = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class TinyBert:
    """What the model is to be like. `config` overrides entries of `config.json`."""

    pooling: str = "mean"
    include_prompt: bool = True
    normalize: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    max_seq_length: int | None = 48
    model_max_length: int | None = 512
    lowercase: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    dtype: str = "float32"
    seed: int = 0


def save_tiny_bert(directory: Path, model: TinyBert | None = None) -> Path:
    """Write a tiny BERT with every side file into `directory`, and return that."""
    model = model or TinyBert()
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizers.Tokenizer.from_str(_tokenizer(lowercase=model.lowercase))
    tokenizer.save(str(directory / "tokenizer.json"))
    config = _config(tokenizer.get_vocab_size(), model)
    tensors = _tensors(config, np.random.default_rng(model.seed))
    safetensors.numpy.save_file(
        {model.prefix + name: value.astype(model.dtype) for name, value in tensors.items()},
        directory / "model.safetensors",
        {"format": "pt"},
    )
    for name, document in _documents(config, model).items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(json.dumps(document, indent=2), encoding="utf-8")
    return directory


@cache
def _tokenizer(*, lowercase: bool) -> str:
    """The tokenizer.json."""
    words = Counter(word.lower().strip(".,;:()\"'") for word in prose_words())
    whole = [word for word, _ in words.most_common(600) if word]
    letters = sorted({letter for word in words for letter in word if letter.isascii()})
    pieces = dict.fromkeys([*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters), *whole])
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    # What a training run leaves behind, and nobody may heed.
    tokenizer.enable_truncation(max_length=16)
    tokenizer.enable_padding(length=16)
    return tokenizer.to_str()


def _config(vocab_size: int, model: TinyBert) -> dict[str, Any]:
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "pad_token_id": 0,
        **model.config,
    }


def _tensors(config: Mapping[str, Any], random: np.random.Generator) -> Tensors:
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    tensors: Tensors = {}

    def add(name: str, *shape: int, around: float = 0.0) -> None:
        tensors[name] = (around + 0.3 * random.standard_normal(shape)).astype(np.float32)

    def add_linear(name: str, inputs: int, outputs: int) -> None:
        add(f"{name}.weight", outputs, inputs)
        add(f"{name}.bias", outputs)

    def add_norm(name: str) -> None:
        add(f"{name}.weight", hidden, around=1.0)
        add(f"{name}.bias", hidden)

    for table in ("vocab_size:word", "type_vocab_size:token_type", "max_position_embeddings:position"):
        key, _, name = table.partition(":")
        add(f"embeddings.{name}_embeddings.weight", config[key], hidden)
    add_norm("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{index}" for index in range(config["num_hidden_layers"])):
        for part in ("query", "key", "value"):
            add_linear(f"{layer}.attention.self.{part}", hidden, hidden)
        add_linear(f"{layer}.attention.output.dense", hidden, hidden)
        add_norm(f"{layer}.attention.output.LayerNorm")
        add_linear(f"{layer}.intermediate.dense", hidden, wide)
        add_linear(f"{layer}.output.dense", wide, hidden)
        add_norm(f"{layer}.output.LayerNorm")
    return tensors


def _documents(config: Mapping[str, Any], model: TinyBert) -> dict[str, Any]:
    classes = ["Transformer", "Pooling", *(["Normalize"] if model.normalize else [])]
    folders = ["", "1_Pooling", "2_Normalize"]
    tokenizer_config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": model.lowercase,
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS},
        **({} if model.model_max_length is None else {"model_max_length": model.model_max_length}),
    }
    return {
        "config.json": config,
        "tokenizer_config.json": tokenizer_config,
        "sentence_bert_config.json": {"max_seq_length": model.max_seq_length, "do_lower_case": False},
        "modules.json": [
            {"idx": index, "name": str(index), "path": folder, "type": f"sentence_transformers.models.{name}"}
            for index, (name, folder) in enumerate(zip(classes, folders, strict=False))
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": config["hidden_size"],
            "pooling_mode_cls_token": model.pooling == "cls",
            "pooling_mode_mean_tokens": model.pooling == "mean",
            "include_prompt": model.include_prompt,
        },
        "config_sentence_transformers.json": {
            "prompts": dict(model.prompts),
            "default_prompt_name": model.default_prompt_name,
        },
    }
