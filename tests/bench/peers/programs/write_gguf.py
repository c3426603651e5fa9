"""A BERT with mean pooling as a GGUF file of 32-bit floats: python write_gguf.py MODEL FILE.

It runs in the environment of llama-cpp-python, with the package `gguf`. The names of tensors are those that
`gguf` maps from transformers' names.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors import safe_open

MEAN = gguf.PoolingType.MEAN
# GGUF has no name for [CLS], which llama.cpp puts at the beginning.
SPECIAL = {"[PAD]": "pad", "[UNK]": "unk", "[CLS]": "bos", "[SEP]": "sep", "[MASK]": "mask"}
# Layers that llama.cpp does not use, with the prefix `bert.` or without.
UNUSED = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")


def write_settings(writer: Any, config: dict[str, Any]) -> None:
    """Write the shape of the model, the pooling, and the bidirectional attention."""
    writer.add_name(config.get("_name_or_path", "model"))
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(MEAN)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def write_vocabulary(writer: Any, tokens: list[str], config: dict[str, Any]) -> None:
    """Write a WordPiece vocabulary. llama.cpp marks the first piece of a word, not the following ones."""
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_token_list([mark_piece(token) for token in tokens])
    writer.add_token_types(kinds)
    for number, token in enumerate(tokens):
        if token in SPECIAL:
            getattr(writer, f"add_{SPECIAL[token]}_token_id")(number)
    writer.add_eos_token_id(tokens.index("[SEP]"))


def mark_piece(token: str) -> str:
    """Return a piece as GGUF has it: U+2581 before the first piece of a word, nothing before the others."""
    if token in SPECIAL:
        return token
    return token[2:] if token.startswith("##") else f"\u2581{token}"


def write_tensors(writer: Any, weights: Path, layers: int) -> None:
    """Write all weights as 32-bit floats under the names of llama.cpp."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, layers)
    with safe_open(weights, framework="numpy") as stored:
        for key in stored.keys():  # noqa: SIM118  it has keys() only
            plain = key.removeprefix("bert.")
            if plain in UNUSED:
                continue
            name = names.get_name(plain, try_suffixes=(".weight", ".bias"))
            if name is None:
                raise SystemExit(f"{key} has no name in GGUF")
            writer.add_tensor(name, stored.get_tensor(key).astype(np.float32))


def main() -> None:
    """Write the file of the second argument from the model directory of the first one."""
    model, file = Path(sys.argv[1]), sys.argv[2]
    config = json.loads((model / "config.json").read_text("utf-8"))
    writer = gguf.GGUFWriter(file, "bert")
    write_settings(writer, config)
    write_vocabulary(writer, (model / "vocab.txt").read_text("utf-8").splitlines(), config)
    write_tensors(writer, model / "model.safetensors", config["num_hidden_layers"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
