"""LoRA adapters that the package peft itself makes and saves, over tiny models of many architectures.

peft is not among the packages of the tests, because nothing else needs it. After a change of
`models/adapters.py` or `merged_weights.py`, install peft 0.21 beside them and run this module.
`test_lora_adapters.py` compares without it.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.test_lora_adapters import (
    HEADLESS,
    LANGUAGE_MODEL,
    TEXTS,
    TOLERANCE,
    Case,
    compute,
    difference,
    load_class,
    serve,
)
from parity.test_published_directories import EMBEDDERS
from support.lora_adapters import Lora
from support.published import LONGEST, Published, save_published
from vecmill.values.aliases import FloatArray

peft = pytest.importorskip("peft", reason="the comparison with peft needs peft")

SEED = 4
STRENGTH = 0.3
ALL = {"target_modules": "all-linear"}
ARCHITECTURES = {
    "bert": "BAAI/bge-small-en-v1.5",
    "xlm_roberta": "intfloat/multilingual-e5-base",
    "distilbert": "sentence-transformers/msmarco-distilbert-base-tas-b",
    "mpnet": "sentence-transformers/all-mpnet-base-v2",
    "modernbert": "nomic-ai/modernbert-embed-base",
    "t5": "sentence-transformers/gtr-t5-base",
    # transformers renames the modules of these two, and takes matrices apart.
    "nomic_bert": "nomic-ai/nomic-embed-text-v1.5",
    "gte": "Snowflake/snowflake-arctic-embed-m-v2.0",
    "eurobert": "EuroBERT/EuroBERT-210m",
    "mistral": "intfloat/e5-mistral-7b-instruct",
    "gemma3": "google/embeddinggemma-300m",
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "pattern": {"target_modules": r".*layer\.[01]\.attention.*(query|key)"},
    "rslora": {"target_modules": ["query", "value"], "use_rslora": True},
    "ranks": {
        **ALL,
        "rank_pattern": {"query": 2, "layer.1.output.dense": 6, "^encoder.layer.0.output.dense": 3},
        "alpha_pattern": {"value": 9},
    },
    "tables": {"target_modules": ["word_embeddings", "position_embeddings", "query"]},
    "saved": {"target_modules": ["query"], "modules_to_save": ["LayerNorm", "word_embeddings"]},
    "some_layers": {"target_modules": ["query"], "layers_to_transform": [1], "layers_pattern": "layer"},
    "left_out": {**ALL, "exclude_modules": ["key"]},
    "biases": {"target_modules": ["query"], "bias": "lora_only"},
    "all_biases": {"target_modules": ["query"], "bias": "all"},
    "no_task": {"target_modules": ["query"], "task_type": None},
}
ADDED = {
    "as_they_are": {"target_modules": ["query"]},
    "adapted": {"target_modules": ["query", "word_embeddings"]},
    "saved": {"target_modules": ["query"], "modules_to_save": ["word_embeddings"]},
}
HEADS = {
    "encoder": Case(HEADLESS, "XLMRobertaForSequenceClassification", Lora(()), labels=1),
    "labels": Case(HEADLESS, "XLMRobertaForSequenceClassification", Lora(()), labels=3),
    "decoder": Case(LANGUAGE_MODEL, "Qwen3ForSequenceClassification", Lora(()), labels=1),
}


def plain(name: str) -> Published:
    """The encoder of a published model, without its modules and its own spelling."""
    model = EMBEDDERS[name]
    return replace(
        model,
        modules=None,
        sentence=None,
        spelling={},
        instead=(),
        rename=None,
        prompts={},
        tokenizer_config={**model.tokenizer_config, "model_max_length": LONGEST},
    )


def adapt(model: Any, settings: Mapping[str, Any]) -> Any:
    """The model with an adapter of random values."""
    import torch

    defaults = {"r": 4, "lora_alpha": 6, "task_type": "FEATURE_EXTRACTION"}
    adapted = peft.get_peft_model(model, peft.LoraConfig(**{**defaults, **settings}))
    draw = torch.Generator().manual_seed(SEED)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data += STRENGTH * torch.randn(parameter.shape, generator=draw)
    return adapted.eval()


def embed(model: Any, folder: Path) -> FloatArray:
    """The mean of each text's hidden states, as plain directories are pooled."""
    return compute(Case(plain(ARCHITECTURES["bert"]), "", Lora(())), model, folder)


def unit(rows: FloatArray) -> FloatArray:
    lengths: FloatArray = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / lengths, np.float32)


def check(published: Published, settings: Mapping[str, Any], folder: Path) -> None:
    base = save_published(folder / "base", published, seed=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        model = load_class(published.class_name, base)
        bare = embed(model, base)
        adapted = adapt(model, settings)
        adapted.save_pretrained(folder / "adapter")
        expected = embed(adapted, base)
    assert difference(expected, bare) > 0.05
    assert difference(unit(serve(folder / "adapter", folder / "cache")), expected) <= TOLERANCE


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_adapters_of_all_linear_layers_agree_with_peft(name: str, tmp_path: Path) -> None:
    check(plain(ARCHITECTURES[name]), ALL, tmp_path)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_of_an_adapter_agree_with_peft(name: str, tmp_path: Path) -> None:
    check(plain(ARCHITECTURES["bert"]), SETTINGS[name], tmp_path)


@pytest.mark.parametrize("name", HEADS)
def test_an_adapter_with_a_head_agrees_with_peft(name: str, tmp_path: Path) -> None:
    case = HEADS[name]
    base = save_published(tmp_path / "base", case.base, seed=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = adapt(load_class(case.class_name, base, case.labels), {"task_type": "SEQ_CLS"})
        adapted.save_pretrained(tmp_path / "adapter")
        expected = compute(case, adapted, base)
    assert difference(serve(tmp_path / "adapter", tmp_path / "cache"), expected) <= TOLERANCE


@pytest.mark.parametrize("name", ADDED)
def test_tokens_that_were_added_for_an_adapter_agree_with_peft(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """peft then saves the longer table, under names that depend on the settings."""
    import torch
    import transformers

    published = plain(ARCHITECTURES["bert"])
    base, folder = save_published(tmp_path / "base", published, seed=SEED), tmp_path / "adapter"
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens(["[E1]", "[E2]"], special_tokens=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = load_class(published.class_name, base)
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        table = model.get_input_embeddings().weight
        table.data[-2:] = torch.randn(2, table.shape[1], generator=torch.Generator().manual_seed(SEED))
        adapted = adapt(model, ADDED[name])
        adapted.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        monkeypatch.setattr(
            "parity.test_lora_adapters.TEXTS", [f"{text[:20]} [E1] ships [E2]" for text in TEXTS]
        )
        expected = embed(adapted, folder)
    assert difference(unit(serve(folder, tmp_path / "cache")), expected) <= TOLERANCE


@pytest.mark.parametrize("name", ["BAAI/bge-small-en-v1.5", "Qwen/Qwen3-Embedding-0.6B"])
def test_adapters_that_sentence_transformers_saves_agree(name: str, tmp_path: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    base = save_published(tmp_path / "base", EMBEDDERS[name], seed=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SentenceTransformer(str(base))
        model.add_adapter(
            peft.LoraConfig(r=4, init_lora_weights=False, task_type="FEATURE_EXTRACTION", **ALL)
        )
        draw = torch.Generator().manual_seed(SEED)
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.data += STRENGTH * torch.randn(parameter.shape, generator=draw)
        model.eval()
        model.save_pretrained(str(tmp_path / "adapter"))
        expected = np.asarray(model.encode(TEXTS), np.float32)
    assert difference(serve(tmp_path / "adapter", tmp_path / "cache"), expected) <= TOLERANCE
