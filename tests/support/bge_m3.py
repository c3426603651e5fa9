"""A tiny model laid out as BAAI/bge-m3, and its three outputs as FlagEmbedding computes them.

Source of the rules: `EncoderOnlyEmbedderM3Model` and `M3Embedder` of FlagEmbedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from support.published import NORMALIZE, WIDTH, Published, edit_json, pooling, save_published
from support.pytorch_files import save_with_torch
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
HEADS = {"sparse_linear.pt": 1, "colbert_linear.pt": WIDTH}


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
    """The files of the two heads, as `torch.save` writes the state of a linear layer."""
    import torch

    torch.manual_seed(seed)
    for name, outputs in HEADS.items():
        save_with_torch(folder / name, torch.nn.Linear(WIDTH, outputs).state_dict(), form)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs for one text: (dim,), token id -> weight, and (tokens - 1, dim)."""

    dense: FloatArray
    weights: dict[int, float]
    vectors: FloatArray


class Reference:
    """The model in torch, each text alone; `defect` names what it does wrong."""

    def __init__(self, folder: Path, defect: str = "") -> None:
        import torch
        import transformers

        self._defect = defect
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        self._model = transformers.XLMRobertaModel.from_pretrained(str(folder)).float().eval()
        self._heads = {
            name: torch.load(folder / f"{name}.pt", weights_only=True)
            for name in ("sparse_linear", "colbert_linear")
        }
        special = [] if defect == "special tokens keep their weights" else ["cls", "eos", "pad", "unk"]
        self._unused = {getattr(self._tokenizer, f"{role}_token_id") for role in special}

    def compute(self, texts: Sequence[str]) -> list[Outputs]:
        """The outputs of each text."""
        import torch

        with torch.no_grad():
            return [self._compute(text) for text in texts]

    def _compute(self, text: str) -> Outputs:
        import torch

        given = self._tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt")
        hidden = self._model(**given).last_hidden_state[0]
        weights = self._apply("sparse_linear", hidden)[:, 0]
        if self._defect != "no relu":
            weights = torch.relu(weights)
        kept = hidden if self._defect == "the first token has a vector" else hidden[1:]
        vectors = self._apply("colbert_linear", kept)
        if self._defect != "vectors are not normalised":
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        return Outputs(
            torch.nn.functional.normalize(hidden[0], dim=-1).numpy(),
            self._pool(given["input_ids"][0].tolist(), weights.tolist()),
            vectors.numpy(),
        )

    def _apply(self, name: str, hidden: Any) -> Any:
        head = self._heads[name]
        bias = 0 if self._defect == f"{name} has no bias" else head["bias"]
        return hidden @ head["weight"].T + bias

    def _pool(self, ids: Sequence[int], weights: Sequence[float]) -> dict[int, float]:
        found: dict[int, float] = {}
        for token_id, weight in zip(ids, weights, strict=True):
            if token_id in self._unused or weight == 0:
                continue
            if self._defect == "weights add up":
                found[token_id] = found.get(token_id, 0) + weight
            else:
                found[token_id] = max(found.get(token_id, weight), weight)
        return found


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
