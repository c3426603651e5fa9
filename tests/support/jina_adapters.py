"""Adapters as jina-embeddings-v3 stores them, and the tensors of the same model with one of them merged.

Each matrix W of the encoder is stored as `parametrizations.weight.original`, beside A and B of all adapters.
The matrix of an adapter is W + B A alpha / rank, and W + A B alpha / rank for a table of embeddings.
"""

from collections.abc import Mapping

import numpy as np

from vecmill.values.aliases import FloatArray

ADAPTERS = ("retrieval.query", "retrieval.passage", "separation", "classification", "text-matching")
INSTRUCTIONS: Mapping[str, str] = {
    "retrieval.query": "Represent the query for retrieving evidence documents: ",
    "retrieval.passage": "Represent the document for retrieval: ",
    "separation": "",
    "classification": "",
    "text-matching": "",
}
RANK = 3
ALPHA = 2
SETTINGS = {
    "lora_adaptations": list(ADAPTERS),
    "lora_alpha": ALPHA,
    "lora_dropout_p": 0.0,
    "lora_main_params_trainable": False,
    "lora_rank": RANK,
    "load_trained_adapters": True,
    "task_instructions": dict(INSTRUCTIONS),
    "matryoshka_dimensions": [32, 64, 128, 256, 512, 768, 1024],
    "truncate_dim": None,
}
_ORIGINAL, _LOW = "parametrizations.weight.original", "parametrizations.weight.0.lora_"
_STRENGTH = 0.5


def has_adapters(name: str) -> bool:
    """Tables of embeddings and matrices have, norms and biases have not."""
    return name.endswith(("Wqkv.weight", "out_proj.weight", "fc1.weight", "fc2.weight", "dense.weight")) or (
        "_embeddings." in name
    )


def add_adapters(tensors: Mapping[str, FloatArray], seed: int) -> dict[str, FloatArray]:
    """The tensors of a model with random adapters; names begin with "roberta." as in the published file."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> FloatArray:
        return (_STRENGTH * random.standard_normal((len(ADAPTERS), *shape))).astype(np.float32)

    found = {}
    for name, tensor in sorted(tensors.items()):
        stem = f"roberta.{name.removesuffix('weight')}"
        if not has_adapters(name):
            found[f"roberta.{name}"] = tensor
            continue
        rows, columns = tensor.shape
        is_table = "_embeddings." in name
        found[stem + _ORIGINAL] = tensor
        found[stem + _LOW + "A"] = draw(rows, RANK) if is_table else draw(RANK, columns)
        found[stem + _LOW + "B"] = draw(RANK, columns) if is_table else draw(rows, RANK)
    return found


def merge_adapter(tensors: Mapping[str, FloatArray], adapter: int) -> dict[str, FloatArray]:
    """The tensors of the model with an adapter, by its number from 1, or without any for 0."""
    found = {}
    for name, tensor in tensors.items():
        if name.endswith(_ORIGINAL):
            stem = name.removesuffix(_ORIGINAL)
            merged = tensor.astype(np.float64)
            if adapter:
                low = [tensors[f"{stem}{_LOW}{part}"][adapter - 1].astype(np.float64) for part in "AB"]
                first, second = low if "_embeddings." in name else low[::-1]
                merged += first @ second * ALPHA / RANK
            found[f"{stem}weight"] = merged.astype(np.float32)
        elif _LOW not in name:
            found[name] = tensor
    return found
