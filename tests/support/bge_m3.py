"""A tiny model laid out as BAAI/bge-m3, and its three outputs as FlagEmbedding computes them.

Source of the rules: `EncoderOnlyEmbedderM3Model` and `M3Embedder` of FlagEmbedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from support.families import load_class
from support.published import NORMALIZE, WIDTH, Published, edit_json, pooling, save_published
from support.pytorch_files import save_arrays
from support.references import Reference as ModelOfLibrary
from support.references import digest_directory
from vecmill.values.aliases import FloatArray

LONGEST = 8_192
MODEL = Published(
    "XLMRobertaModel",
    "XLMRobertaTokenizer",
    (pooling("cls"), NORMALIZE),
    {"max_position_embeddings": LONGEST + 2, "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5},
    tokenizer_config={"model_max_length": LONGEST},
    sentence={"max_seq_length": LONGEST, "do_lower_case": False},
)
HEADS = ("sparse_linear.pt", "colbert_linear.pt")


def save_encoder(folder: Path, *, seed: int) -> Path:
    """The model with safetensors, and without the files for its other outputs."""
    save_published(folder, MODEL, seed=seed)
    edit_json(
        folder / "config_sentence_transformers.json",
        __version__={"sentence_transformers": "2.2.2", "transformers": "4.33.0", "pytorch": "2.1.2+cu121"},
    )
    return folder


def save_bge_m3(folder: Path, *, seed: int) -> Path:
    """The whole model."""
    save_encoder(folder, seed=seed)
    save_heads(folder, seed=seed + 1)  # not 11, with which no weight is below 0
    return folder


def save_heads(folder: Path, *, seed: int, form: str = "zip") -> None:
    """The files of the two heads, which are the states of linear layers."""
    for name, head in draw_heads(seed).items():
        save_arrays(folder / f"{name}.pt", head, form)


def draw_heads(seed: int) -> dict[str, dict[str, FloatArray]]:
    """The weights and biases of the heads, by the names of their files."""
    random = np.random.default_rng(seed)
    most = WIDTH**-0.5
    shapes = {"sparse_linear": (1, WIDTH), "colbert_linear": (WIDTH, WIDTH)}
    return {
        name: {
            "weight": random.uniform(-most, most, shape).astype(np.float32),
            "bias": random.uniform(-most, most, shape[:1]).astype(np.float32),
        }
        for name, shape in shapes.items()
    }


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs for one text: (dim,), token id -> weight, and (tokens - 1, dim)."""

    dense: FloatArray
    weights: dict[int, float]
    vectors: FloatArray


class Reference:
    """The formulas over the hidden states of transformers' class, each text alone.

    The heads are those of `seed`; `defect` names what is done wrong.
    """

    def __init__(self, folder: Path, seed: int, defect: str = "") -> None:
        self._defect, self._heads = defect, draw_heads(seed)
        self._model = ModelOfLibrary(
            lambda: (load_class(folder, MODEL.class_name), _load_tokenizer(folder)), digest_directory(folder)
        )

    def compute(self, texts: Sequence[str]) -> list[Outputs]:
        """The outputs of each text."""
        read = self._model.ask(["hidden", list(texts)], lambda loaded: _read(loaded, texts))
        special = read["special"] if self._defect != "special tokens keep their weights" else []
        return [
            self._compute(ids.tolist(), hidden, special)
            for ids, hidden in zip(read["ids"], read["hidden"], strict=True)
        ]

    def _compute(self, ids: list[int], hidden: FloatArray, special: Sequence[int]) -> Outputs:
        weights = self._apply("sparse_linear", hidden)[:, 0]
        if self._defect != "no relu":
            weights = np.maximum(weights, 0)
        kept = hidden if self._defect == "the first token has a vector" else hidden[1:]
        vectors = self._apply("colbert_linear", kept)
        if self._defect != "vectors are not normalised":
            vectors = _normalize(vectors)
        return Outputs(_normalize(hidden[0]), self._pool(ids, weights.tolist(), special), vectors)

    def _apply(self, name: str, hidden: FloatArray) -> FloatArray:
        head = self._heads[name]
        found: FloatArray = hidden @ head["weight"].T
        return found if self._defect == f"{name} has no bias" else found + head["bias"]

    def _pool(self, ids: Sequence[int], weights: Sequence[float], special: Sequence[int]) -> dict[int, float]:
        found: dict[int, float] = {}
        for token_id, weight in zip(ids, weights, strict=True):
            if token_id in special or weight == 0:
                continue
            if self._defect == "weights add up":
                found[token_id] = found.get(token_id, 0) + weight
            else:
                found[token_id] = max(found.get(token_id, weight), weight)
        return found


def _load_tokenizer(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(str(folder))


def _read(loaded: tuple[Any, Any], texts: Sequence[str]) -> dict[str, Any]:
    """The ids and hidden states of each text, and the ids of tokens without weights."""
    import torch

    model, tokenizer = loaded
    found: dict[str, Any] = {"ids": [], "hidden": []}
    with torch.no_grad():
        for text in texts:
            given = tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt")
            found["ids"].append(given["input_ids"][0].numpy())
            found["hidden"].append(model(**given).last_hidden_state[0].numpy())
    roles = ("cls", "eos", "pad", "unk")
    return {**found, "special": [getattr(tokenizer, f"{role}_token_id") for role in roles]}


def _normalize(rows: FloatArray) -> FloatArray:
    unit: FloatArray = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


def score(query: Outputs, document: Outputs, weights: Sequence[float]) -> float:
    """The score of `M3Embedder.compute_score`: of dense, sparse and multi-vector embeddings, weighted."""
    shared = query.weights.keys() & document.weights.keys()
    scores = (
        float(query.dense @ document.dense),
        sum(query.weights[token_id] * document.weights[token_id] for token_id in shared),
        float((query.vectors @ document.vectors.T).max(axis=1).mean()),
    )
    total = sum(weight * one for weight, one in zip(weights, scores, strict=True))
    return total / sum(weights)


DEFECTS = (
    "special tokens keep their weights",
    "no relu",
    "the first token has a vector",
    "vectors are not normalised",
    "sparse_linear has no bias",
    "colbert_linear has no bias",
    "weights add up",
)


def assert_same_outputs(found: Sequence[Outputs], expected: Sequence[Outputs], tolerance: float) -> None:
    """Fail unless all outputs of all texts agree."""
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.dense, theirs.dense, atol=tolerance)
        # A weight that is nearly 0 may be 0 on one side.
        ids = sorted(ours.weights.keys() | theirs.weights.keys())
        weights = np.array([[one.weights.get(token_id, 0.0) for token_id in ids] for one in (ours, theirs)])
        np.testing.assert_allclose(weights[0], weights[1], atol=tolerance)
        assert ours.vectors.shape == theirs.vectors.shape
        np.testing.assert_allclose(ours.vectors, theirs.vectors, atol=tolerance)
