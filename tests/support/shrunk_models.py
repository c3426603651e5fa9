"""Models of the census with small sizes and random weights, as directories that libraries can load.

Only sizes differ from the settings of the census: widths, layers, heads, windows, the vocabulary and the
longest input. All other settings keep their values and the publisher's spelling.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from support.census import WEIGHTS, CensusModel, make_vocabulary
from support.families import save_tiny_family
from support.published import edit_json
from vecmill.serving_plan.outcome import OutcomeKind

WIDTH, INNER, LONGEST = 32, 48, 40
_LAYERS, _HEADS, _HEAD_WIDTH = 2, 4, 8
_OTHER_WIDTH = 24  # of the output of Dense modules that change the width
_POSITIONS = 66  # RoBERTa's begin after the padding token's

# The libraries have no class for these without the publisher's code; other tests compare them.
WITHOUT_CLASS: Mapping[str, str] = {
    "Alibaba-NLP/gte-Qwen2-1.5B-instruct": "tests/parity/test_published_directories.py",
    "jinaai/jina-embeddings-v2-base-en": "tests/parity/test_published_directories.py",
    "jinaai/jina-reranker-v2-base-multilingual": "tests/parity/test_jina_reranker.py",
    "nomic-ai/nomic-embed-text-v1": "tests/parity/test_published_directories.py",
    "nomic-ai/nomic-embed-text-v1.5": "tests/parity/test_published_directories.py",
    "NovaSearch/stella_en_1.5B_v5": "tests/parity/test_published_directories.py",
}

_SIZES: Mapping[str, int] = {
    **dict.fromkeys(("hidden_size", "dim", "d_model", "pooler_hidden_size"), WIDTH),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff"), INNER),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "num_layers", "num_decoder_layers"), _LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_heads", "num_heads"), _HEADS),
    **dict.fromkeys(("head_dim", "d_kv"), _HEAD_WIDTH),
    **dict.fromkeys(("sliding_window", "local_attention"), _HEAD_WIDTH),
    "embedding_size": 16,
    "num_key_value_heads": 2,
    "position_buckets": 8,
    "max_position_embeddings": _POSITIONS,
    "query_pre_attn_scalar": 16,
}
_IDS = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "pad_token_id")
_OWN_CODE = "auto_map"


def is_comparable(model: CensusModel) -> bool:
    """Return whether a small model can be saved and compared with the class of a library."""
    return model.outcome == OutcomeKind.GRAPH and model.name not in WITHOUT_CLASS


def save_shrunk(folder: Path, model: CensusModel, *, seed: int) -> Path:
    """Write a small model with all settings but those that name the publisher's code, which libraries run."""
    folder.mkdir(parents=True)
    for name, text in make_vocabulary(model.tokenizer).items():
        (folder / name).write_text(text, "utf-8")
    tokens = _count_tokens(folder)
    config = _shrink(model.files["config.json"], tokens)
    config.pop(_OWN_CODE, None)
    class_name = config["architectures"][0]
    settings = {name: value for name, value in config.items() if name not in ("architectures", "model_type")}
    save_tiny_family(folder, class_name, seed=seed, **settings)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    for index, (name, document) in enumerate(sorted(model.files.items())):
        if name != "config.json":
            widths = {
                _width(model.files["config.json"]): WIDTH,
                model.files["config.json"]["vocab_size"]: tokens,
            }
            _save_file(folder / name, document, widths, seed + index)
    edit_json(folder / "tokenizer_config.json", model_max_length=LONGEST)
    return folder


def name_code(folder: Path, model: CensusModel) -> None:
    """Give config.json back what names the publisher's code."""
    code = {key: value for key, value in model.files["config.json"].items() if key == _OWN_CODE}
    edit_json(folder / "config.json", **code)


def _count_tokens(folder: Path) -> int:
    document = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    numbers = [int(token["id"]) for token in document["added_tokens"]]
    return max(len(document["model"]["vocab"]), 1 + max(numbers))


def _shrink(config: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    small: dict[str, Any] = {
        name: _SIZES[name] if name in _SIZES and value else value for name, value in config.items()
    }
    for name in _IDS:
        if (small.get(name) or 0) >= tokens:
            small[name] = 0
    if "layer_types" in small:
        small["layer_types"] = [*dict.fromkeys(small["layer_types"])][-_LAYERS:] * _LAYERS
        small["layer_types"] = small["layer_types"][:_LAYERS]
    # The library would round the weights, which are fp32 here, to the type of the published ones.
    types: dict[str, Any] = {name: "float32" for name in ("dtype", "torch_dtype") if name in small}
    return {**small, **types, "vocab_size": tokens}


def _save_file(path: Path, document: Any, widths: Mapping[int, int], seed: int) -> None:
    path.parent.mkdir(exist_ok=True)
    if isinstance(document, dict):
        document = dict(document)
        for key in ("word_embedding_dimension", "in_features", "out_features", "embedding_dimension"):
            if document.get(key) is not None:
                document[key] = widths.get(document[key], _OTHER_WIDTH)
        if "max_seq_length" in document:
            document["max_seq_length"] = LONGEST
    path.write_text(json.dumps(document), "utf-8")
    if isinstance(document, dict) and "out_features" in document:
        _save_dense(path.with_name(WEIGHTS), document, seed)


def _width(config: Mapping[str, Any]) -> Any:
    return next(config[name] for name in ("hidden_size", "dim", "d_model") if name in config)


def _save_dense(path: Path, document: Mapping[str, Any], seed: int) -> None:
    random = np.random.default_rng(seed)
    outputs, inputs = document["out_features"], document["in_features"]
    tensors = {"linear.weight": 0.5 * random.standard_normal((outputs, inputs))}
    if document.get("bias", True):
        tensors["linear.bias"] = 0.5 * random.standard_normal(outputs)
    safetensors.numpy.save_file({name: value.astype(np.float32) for name, value in tensors.items()}, path)
