"""Models of published shapes with random weights, and the rows that transformers computes for them.

Run in the test environment: `size_models.py NAME FOLDER`. Writes the model directory FOLDER/model, and
FOLDER/expected.npz with token ids and the reference's rows (or logits) in fp32.
"""

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors.torch
import torch
import transformers

from support.texts import mixed_texts
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer

SEED = 20_260_103
TEXTS = 6
SHARD_ELEMENTS = 500_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A published shape: transformers' config and model classes, and how rows are pooled."""

    config_class: str
    model_class: str
    config: Mapping[str, Any]
    pooling: str | None  # `None` for a model that scores pairs
    max_tokens: int = 512
    dtype: str = "float32"
    is_compared: bool = True  # with transformers in fp32, which needs four bytes for each parameter


def sizes(hidden: int, layers: int, heads: int, inner: int, **others: object) -> Mapping[str, object]:
    """The entries of a config; `inner` is the width of the feed-forward network."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return MappingProxyType({**dict(zip(names, (hidden, layers, heads, inner), strict=True)), **others})


BERT_BASE = sizes(768, 12, 12, 3072)
XLMR = MappingProxyType({"vocab_size": 250_002, "type_vocab_size": 1, "pad_token_id": 1})
DEBERTA = MappingProxyType(
    {
        "vocab_size": 128_100,
        "max_position_embeddings": 512,
        "type_vocab_size": 0,
        "relative_attention": True,
        "position_buckets": 256,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "pooler_hidden_size": 768,
        "pooler_dropout": 0,
        "pooler_hidden_act": "gelu",
        "num_labels": 1,
    }
)
QWEN3_VOCABULARY = MappingProxyType(
    {"vocab_size": 151_669, "max_position_embeddings": 32_768, "tie_word_embeddings": True}
)
QWEN3 = MappingProxyType(
    {
        **QWEN3_VOCABULARY,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000},
    }
)


def bert(pooling: str, config: Mapping[str, Any]) -> Shape:
    return Shape("BertConfig", "BertModel", config, pooling)


def xlmr(pooling: str, config: Mapping[str, Any]) -> Shape:
    whole = {**XLMR, "max_position_embeddings": 8194, **config}
    return Shape("XLMRobertaConfig", "XLMRobertaModel", whole, pooling, max_tokens=8192)


def modernbert(config: Mapping[str, Any]) -> Shape:
    return Shape("ModernBertConfig", "ModernBertModel", config, "cls", max_tokens=8192)


def qwen3(config: Mapping[str, Any], **others: Any) -> Shape:
    return Shape("Qwen3Config", "Qwen3Model", config, "lasttoken", max_tokens=8192, **others)


SHAPES: Mapping[str, Shape] = {
    "MiniLM-L6": bert("mean", sizes(384, 6, 12, 1536)),
    "bge-small": bert("cls", sizes(384, 12, 12, 1536)),
    "bge-base": bert("cls", BERT_BASE),
    "e5-base": bert("mean", BERT_BASE),
    "bge-m3": xlmr("cls", sizes(1024, 24, 16, 4096)),
    "bge-reranker-base": Shape(
        "XLMRobertaConfig",
        "XLMRobertaForSequenceClassification",
        XLMR | BERT_BASE | {"max_position_embeddings": 514, "num_labels": 1},
        None,
    ),
    "mxbai-rerank-base": Shape(
        "DebertaV2Config", "DebertaV2ForSequenceClassification", BERT_BASE | DEBERTA, None
    ),
    "ModernBERT-base": modernbert({}),
    # Small ones, whose attention takes most of the time of a long text.
    "XLM-R, 6 layers": xlmr("mean", sizes(384, 6, 12, 1536)),
    "ModernBERT, 6 layers": modernbert(sizes(384, 6, 12, 576)),
    "Qwen3, 6 layers": qwen3(QWEN3_VOCABULARY | sizes(384, 6, 6, 1536, num_key_value_heads=2, head_dim=64)),
    "Qwen3-Embedding-0.6B": qwen3(QWEN3 | sizes(1024, 28, 16, 3072), dtype="bfloat16"),
    "Qwen3-Embedding-4B": qwen3(QWEN3 | sizes(2560, 36, 32, 9728), dtype="bfloat16", is_compared=False),
    # Layers of the real width; all 36 take 32 GB in fp32.
    "Qwen3-Embedding-8B, 2 of 36 layers": qwen3(QWEN3 | sizes(4096, 2, 32, 12_288), dtype="bfloat16"),
}


def save_model(shape: Shape, folder: Path) -> Any:
    """Write a model directory of that shape; return the model in fp32 if it is compared."""
    torch.manual_seed(SEED)
    config = getattr(transformers, shape.config_class)(**shape.config)
    if shape.is_compared:
        model = getattr(transformers, shape.model_class)(config).eval()
        model = model.to(getattr(torch, shape.dtype))
        model.save_pretrained(folder)
    else:
        model = save_shards(shape, config, folder)
    embedded = locate_model().directory
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(embedded / name, folder / name)
    for name, document in _side_files(shape, config.hidden_size).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    if not shape.is_compared:
        return None
    # Read again rather than widened: what is no weight, such as rotary frequencies, is never kept in 16 bits.
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()


def save_shards(shape: Shape, config: Any, folder: Path) -> Any:
    """Write weights as transformers draws them, layer by layer, so that no more than a shard is in memory."""
    with torch.device("meta"):
        model = getattr(transformers, shape.model_class)(config)
    config.architectures = [shape.model_class]
    config.save_pretrained(folder)
    places: dict[str, str] = {}
    for number, names in enumerate(_shards(model.state_dict())):
        file = f"model-{number:05d}.safetensors"
        tensors = {
            name: torch.ones(size, dtype=torch.bfloat16)
            if len(size) == 1
            else torch.empty(size, dtype=torch.bfloat16).normal_(std=config.initializer_range)
            for name, size in names.items()
        }
        safetensors.torch.save_file(tensors, folder / file, {"format": "pt"})
        places |= dict.fromkeys(names, file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return model


def _shards(tensors: Mapping[str, Any]) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yield the shapes of tensors in groups of about `SHARD_ELEMENTS`."""
    group: dict[str, tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        group[name] = tuple(tensor.shape)
        if sum(map(math.prod, group.values())) > SHARD_ELEMENTS:
            yield group
            group = {}
    if group:
        yield group


def _side_files(shape: Shape, hidden_size: int) -> dict[str, Any]:
    tokenizer = {"model_max_length": shape.max_tokens, "tokenizer_class": "PreTrainedTokenizerFast"}
    if shape.pooling is None:
        return {"tokenizer_config.json": tokenizer}
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    return {
        "tokenizer_config.json": tokenizer,
        "sentence_bert_config.json": {"max_seq_length": shape.max_tokens},
        "1_Pooling/config.json": {"word_embedding_dimension": hidden_size, "pooling_mode": shape.pooling},
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
    }


POOLINGS: Mapping[str, Callable[[Any], Any]] = {
    "cls": lambda hidden: hidden[0],
    "mean": lambda hidden: hidden.mean(dim=0),
    "lasttoken": lambda hidden: hidden[-1],
}


def reference_rows(shape: Shape, model: Any, sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """What transformers computes for each text alone: unit rows, or logits."""
    rows = []
    with torch.inference_mode():
        for ids in sequences:
            output = model(
                input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.int64)
            )
            if shape.pooling is None:
                rows.append(output.logits[0])
            else:
                pooled = POOLINGS[shape.pooling](output.last_hidden_state[0])
                rows.append(pooled / pooled.norm())
    return np.asarray(torch.stack(rows).float().numpy())


def main(name: str, folder: Path) -> None:
    """Write the model called `name` and what to expect of it."""
    shape = SHAPES[name]
    model = save_model(shape, folder / "model")
    tokenizer = Tokenizer.load(describe_model(locate_model(folder / "model")))
    sequences = [sequence.token_ids.tolist() for sequence in tokenizer.encode(mixed_texts(SEED, TEXTS))]
    rows = np.empty(0) if model is None else reference_rows(shape, model, sequences)
    np.savez(
        folder / "expected.npz",
        ids=np.concatenate(sequences),
        lengths=[len(sequence) for sequence in sequences],
        rows=rows,
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
