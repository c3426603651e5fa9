"""A small model with every kind of part, and changes of its files, of which some make another space."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from support.lora_adapters import Lora, write_config
from support.published import edit_json
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.values.aliases import FloatArray

Change = Callable[[Path], object]
WEIGHTS = "model.safetensors"
WIDTH, RANK = 32, 3
QUERY = "encoder.layer.0.attention.self.query"


def save_whole_model(folder: Path) -> Path:
    """Write a model with a matrix, a layer normalisation, prompts and a default prompt; return `folder`."""
    prompts = {"query": "ask: ", "document": "read: ", "own": "own: "}
    save_tiny_bert(folder, TinyBert(prompts=prompts, default_prompt_name="own"))
    random = np.random.default_rng(3)
    kinds = {"0": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    kinds |= {"3_LayerNorm": "LayerNorm", "4_Normalize": "Normalize"}
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": path if index else "",
            "type": f"sentence_transformers.{kind}",
        }
        for index, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    _save_module(
        folder / "2_Dense",
        {"in_features": WIDTH, "out_features": 16, "activation_function": "torch.nn.modules.activation.Tanh"},
        {"linear.weight": random.standard_normal((16, WIDTH)), "linear.bias": random.standard_normal(16)},
    )
    norm = {"norm.weight": random.standard_normal(16), "norm.bias": random.standard_normal(16)}
    _save_module(folder / "3_LayerNorm", {"dimension": 16}, norm)
    return folder


def _save_module(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    made = {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
    safetensors.numpy.save_file(made, folder / WEIGHTS)


def save_whole_adapter(folder: Path, base: Path, *, alpha: float = 7) -> Path:
    """Write a LoRA adapter of one matrix of `base`; return `folder`."""
    random = np.random.default_rng(0)
    low, high = (random.standard_normal(shape).astype(np.float32) for shape in ((RANK, WIDTH), (WIDTH, RANK)))
    tensors = {
        f"base_model.model.{QUERY}.lora_A.weight": low,
        f"base_model.model.{QUERY}.lora_B.weight": high,
    }
    folder.mkdir()
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    config = write_config(Lora(("query",), rank=RANK, alpha=alpha), str(base))
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def save_table_router(folder: Path) -> Path:
    """Write a model that looks queries up in a table and computes documents; return `folder`."""
    document = save_tiny_bert(folder / "document_0", TinyBert(normalize=False))
    for name in ("modules.json", "config_sentence_transformers.json", "2_Normalize"):
        (document / name).unlink(missing_ok=True)
    shutil.move(document / "1_Pooling", folder / "document_1")
    query = folder / "query_0"
    query.mkdir()
    shutil.copy(document / "tokenizer.json", query)
    rows = json.loads((document / "config.json").read_text())["vocab_size"]
    table = np.random.default_rng(2).standard_normal((rows, WIDTH)).astype(np.float32)
    safetensors.numpy.save_file({"embedding.weight": table}, query / WEIGHTS)
    types = {"query_0": "StaticEmbedding", "document_0": "Transformer", "document_1": "Pooling"}
    router = {
        "types": {name: f"sentence_transformers.models.{kind}" for name, kind in types.items()},
        "structure": {"query": ["query_0"], "document": ["document_0", "document_1"]},
        "parameters": {"default_route": "document"},
    }
    (folder / "router_config.json").write_text(json.dumps(router))
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}
    (folder / "modules.json").write_text(json.dumps([module]))
    (folder / "config_sentence_transformers.json").write_text("{}")
    return folder


def edit(file: str, **values: Any) -> Change:
    """A change of values of a JSON file."""
    return lambda folder: edit_json(folder / file, **values)


def edit_tensors(change: Callable[[dict[str, FloatArray]], object], file: str = WEIGHTS) -> Change:
    """A change of tensors, in place or as the tensors that it returns."""

    def write(folder: Path) -> None:
        tensors = safetensors.numpy.load_file(folder / file)
        made = change(tensors)
        found = made if isinstance(made, dict) else tensors
        (folder / file).unlink()
        safetensors.numpy.save_file(
            {key: np.ascontiguousarray(one) for key, one in found.items()}, folder / file
        )

    return write


def add_to(name: str, index: tuple[int, ...], file: str = WEIGHTS) -> Change:
    """A change of one number of a tensor, as small as it can be."""

    def change(tensors: dict[str, FloatArray]) -> None:
        tensors[name][index] = np.nextafter(tensors[name][index], np.float32(np.inf))

    return edit_tensors(change, file)


def edit_tokenizer(change: Callable[[dict[str, Any]], object]) -> Change:
    """A change of tokenizer.json."""

    def write(folder: Path) -> None:
        path = folder / "tokenizer.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        change(document)
        path.write_text(json.dumps(document, ensure_ascii=True, indent=3), encoding="utf-8")

    return write


def swap_tokens(document: dict[str, Any]) -> None:
    """Exchange two words of the vocabulary."""
    vocabulary = document["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]


def add_token(document: dict[str, Any]) -> None:
    """Let a word of the vocabulary be a token that no rule splits."""
    vocabulary = document["model"]["vocab"]
    word = max(vocabulary, key=vocabulary.get)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    document["added_tokens"].append({"id": vocabulary[word], "content": word, **flags})


def drop_module(kind: str) -> Change:
    """Remove a module."""

    def change(folder: Path) -> None:
        path = folder / "modules.json"
        modules = [entry for entry in json.loads(path.read_text()) if not entry["type"].endswith(kind)]
        path.write_text(json.dumps(modules))

    return change


def split_shards(folder: Path) -> None:
    """Write the weights as two files and an index."""
    tensors = safetensors.numpy.load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    files = {name: f"model-{1 + index % 2}.safetensors" for index, name in enumerate(sorted(tensors))}
    for file in sorted(set(files.values())):
        safetensors.numpy.save_file(
            {key: one for key, one in tensors.items() if files[key] == file}, folder / file
        )
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": files}))


def rename_tensors(tensors: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Return tensors with the names of an old checkpoint of a class with a head, and one that is not used."""
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {}
    for name, tensor in tensors.items():
        for new, former in old.items():
            name = name.replace(new, former)
        renamed[f"bert.{name}"] = tensor
    return renamed | {"bert.pooler.dense.weight": np.ones((WIDTH, WIDTH), np.float32)}
