"""Small whole model directories of every layout and architecture, in which the fuzz of settings begins."""

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors.numpy

from support.lora_adapters import Lora, write_config
from support.published import respell, save_published
from support.random_models import DRAWS, RandomModel
from support.task_models import save_causal, save_colbert, save_splade, save_task_model
from support.tiny_models import TinyBert, save_tiny_bert
from support.two_towers import as_sentence_transformers, save_clip, save_siglip
from tasks.test_chat_templates import PUBLISHED, save_reranker
from vecmill.serving_plan.manifest import SCHEMA, Machine
from vecmill.serving_plan.plans import write_plan
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import EnginePlan

Save = Callable[[Path], object]


def save_embedder(folder: Path) -> None:
    """An embedder with every module, prompts, and the manifest of `vecmill optimize`."""
    save_tiny_bert(folder, TinyBert(prompts={"query": "query: "}, default_prompt_name="query"))
    modules = json.loads((folder / "modules.json").read_text())
    more = [("LayerNorm", "3_LayerNorm"), ("Dense", "4_Dense"), ("Normalize", "5_Normalize")]
    modules = modules[:2] + [
        {"idx": 2, "name": kind, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for kind, path in more
    ]
    dense = {
        "in_features": 32,
        "out_features": 16,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
        "use_residual": True,
        "module_input_name": "sentence_embedding",
        "module_output_name": None,
    }
    write(folder / "modules.json", modules)
    write(folder / "3_LayerNorm/config.json", {"dimension": 32})
    write(folder / "4_Dense/config.json", dense)
    write(folder / "5_Normalize/config.json", {"module_input_name": "sentence_embedding"})
    ones, random = np.ones(32, np.float32), np.random.default_rng(0).standard_normal((16, 32))
    weight, bias = random.astype(np.float32), np.zeros(16, np.float32)
    tensors = {"norm.weight": ones, "norm.bias": 0 * ones}
    safetensors.numpy.save_file(tensors, folder / "3_LayerNorm/model.safetensors")
    tensors = {"linear.weight": weight, "linear.bias": bias, "residual.weight": weight[::-1].copy()}
    safetensors.numpy.save_file(tensors, folder / "4_Dense/model.safetensors")
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    write(
        folder / "config_sentence_transformers.json",
        {**settings, "similarity_fn_name": "cosine", "truncate_dim": 12, "model_type": "SentenceTransformer"},
    )
    write(folder / "vecmill.json", manifest())


def manifest() -> dict[str, Any]:
    """What `vecmill optimize` writes, of which the server reads a part."""
    plan = write_plan(EnginePlan(lane_widths=(1,)))
    accuracy = {
        "reference": "sentence-transformers",
        "texts": 100,
        "largest_difference": 1e-6,
        "scale": 1.0,
        "cosine_min": 1.0,
        "cosine_mean": 1.0,
        "kept": 1.0,
    }
    return {
        "schema": SCHEMA,
        "model": "tiny",
        "model_fingerprint": "0" * 32,
        "machine": {"fingerprint": Machine.current().fingerprint},
        "versions": {"vecmill": "0.1.0"},
        "plan": plan,
        "candidates": [{"plan": plan, "accuracy": accuracy}],
    }


def save_adapted(folder: Path) -> None:
    """An adapter beside the weights of its base."""
    save_tiny_bert(folder, TinyBert())
    lora = Lora(
        ("query",), ranks={"layer.1.attention.self.query": 4}, alphas={"layer.0.attention.self.query": 3}
    )
    write(folder / "adapter_config.json", write_config(lora, "owner/base"))
    modules = {f"base_model.model.encoder.layer.{index}.attention.self.query": 3 + index for index in (0, 1)}
    tensors: dict[str, FloatArray] = {}
    for name, rank in modules.items():
        tensors[f"{name}.lora_A.weight"] = np.full((rank, 32), 0.1, np.float32)
        tensors[f"{name}.lora_B.weight"] = np.full((32, rank), 0.1, np.float32)
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")


def save_vocabulary_model(folder: Path) -> None:
    """A BERT whose tokenizer is a vocab.txt and its side files."""
    save_tiny_bert(folder, TinyBert())
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n")
    (folder / "tokenizer.json").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    added = {"content": "[MASK]", "lstrip": False, "normalized": False, "special": True}
    more = {
        "added_tokens_decoder": {"4": added},
        "additional_special_tokens": ["[UNK]"],
        "model_input_names": ["input_ids", "token_type_ids"],
        "tokenize_chinese_chars": True,
        "strip_accents": None,
        "truncation_side": "right",
        "split_special_tokens": False,
    }
    write(folder / "tokenizer_config.json", {**config, **more})
    write(folder / "special_tokens_map.json", {"mask_token": "[MASK]"})


def save_static(folder: Path) -> None:
    """A table of token embeddings."""
    save_tiny_bert(folder, TinyBert())
    for name in ("config.json", "tokenizer_config.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    shutil.rmtree(folder / "1_Pooling")
    kinds = ["StaticEmbedding", "Normalize"]
    modules = [
        {"idx": index, "name": kind, "path": "", "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]
    write(folder / "modules.json", modules)
    table = np.random.default_rng(0).standard_normal((2_000, 24)).astype(np.float32)
    safetensors.numpy.save_file({"embedding.weight": table}, folder / "model.safetensors")


def save_sparse(folder: Path) -> None:
    """A SPLADE model."""
    masked = save_task_model(folder.with_name(f"{folder.name}-masked"), "BertForMaskedLM")
    save_splade(folder, masked)


def save_multi_vector(folder: Path) -> None:
    """A multi-vector model that expands queries."""
    encoder = save_task_model(folder.with_name(f"{folder.name}-encoder"), "BertModel")
    save_colbert(folder, encoder, {"strategy": "fixed", "attend": True, "length": 20, "token": "[MASK]"})


def save_stanford(folder: Path) -> None:
    """A checkpoint of Stanford ColBERT."""
    save_task_model(folder, "BertModel")
    config = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", {**config, "architectures": ["HF_ColBERT"]})
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    linear = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    safetensors.numpy.save_file({**tensors, "linear.weight": linear}, folder / "model.safetensors")
    metadata = {
        "dim": 16,
        "query_maxlen": 24,
        "doc_maxlen": 40,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
        "query_token_id": "[MASK]",
        "doc_token_id": "[UNK]",
    }
    write(folder / "artifact.metadata", metadata)


def save_chat_reranker(folder: Path) -> None:
    """A yes-no reranker with a chat template."""
    built = folder.with_name(f"{folder.name}-parts")
    save_reranker(built, PUBLISHED, {"chat_template": {"shout": "!"}}).rename(folder)


def save_old_clip(folder: Path) -> None:
    """A model of texts and pictures with every file and key that is read, those of 2021 too."""
    save_clip(folder)
    config = json.loads((folder / "config.json").read_text())
    older = {f"{key}_dict": config[key] for key in ("text_config", "vision_config")}
    write(folder / "config.json", {**config, **older})
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    more = {
        "do_center_crop": True,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.3, 0.4],
        "rescale_factor": 1 / 255,
    }
    write(folder / "preprocessor_config.json", {**settings, **more})
    write(folder / "processor_config.json", {"image_processor": {**settings, **more}})


def save_clip_module(folder: Path) -> None:
    """A model of texts and pictures in a directory of sentence-transformers."""
    as_sentence_transformers(save_clip(folder), "CLIPModel", "Normalize")
    write(folder / "1_Normalize/config.json", {})


def save_family(family: str, folder: Path) -> None:
    """An embedder of an architecture."""
    families = sorted(DRAWS)
    model = RandomModel.draw(families.index(family))
    published = model._publish(model.modules)
    save_published(folder, published, seed=model.seed, jitter=model.jitter)
    if DRAWS[family].spelling:
        respell(folder, published)


def write(path: Path, document: object) -> None:
    """Write a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1))


def _of_task(class_name: str, **settings: Any) -> Save:
    return lambda folder: save_task_model(folder, class_name, **settings)


_LABELS = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}

# Those of `make test` are written within seconds, and between them have each file that is read.
FEW: Mapping[str, Save] = MappingProxyType(
    {
        "embedder": save_embedder,
        "vocabulary": save_vocabulary_model,
        "static": save_static,
        "multi_vector": save_multi_vector,
        "classifier": _of_task("BertForSequenceClassification", **_LABELS),
        "chat_reranker": save_chat_reranker,
        "adapted": save_adapted,
        "pictures": save_old_clip,
    }
)
ALL: Mapping[str, Save] = MappingProxyType(
    {
        **FEW,
        "reranker": _of_task("BertForSequenceClassification", num_labels=1),
        "token_classifier": _of_task("BertForTokenClassification", **_LABELS),
        "sparse": save_sparse,
        "stanford": save_stanford,
        "causal_reranker": save_causal,
        "pictures_of_module": save_clip_module,
        "siglip": save_siglip,
        **{name: partial(save_family, name) for name in sorted(DRAWS) if name != "static"},
    }
)
# Where a directory does not say it.
TASKS: Mapping[str, str] = MappingProxyType({"causal_reranker": "rerank"})
