"""What a model's own library answers for a directory, found out without vecmill's description of it.

Each text is computed alone, in fp32. The library reads every setting itself: the task is all that it is told.
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecmill.models import Task
from vecmill.requests import Purpose
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding
from vecmill.verification.model_outputs import CheckInput, ModelOutputs

Answer = Callable[[CheckInput], FloatArray | SparseEmbedding]


def inputs_of(task: Task, texts: Sequence[str]) -> tuple[CheckInput, ...]:
    """Return the inputs that a model of a task gets: texts, pairs, or queries and documents."""
    match task:
        case Task.RERANK:
            return tuple(CheckInput(texts[0], text) for text in texts if text)
        case Task.MULTI_VECTOR:
            queries = (CheckInput(text, purpose=Purpose.QUERY) for text in texts[::3])
            return (*map(CheckInput, texts), *queries)
        case _:
            return tuple(map(CheckInput, texts))


def compute_with_library(folder: Path, task: Task, inputs: Sequence[CheckInput]) -> ModelOutputs:
    """Return the library's answer to each input. Raises whatever the library raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        from transformers.utils import logging

        logging.set_verbosity(logging.CRITICAL)
        logging.disable_progress_bar()
        answer = _LOADERS[task](folder)
        return tuple(map(answer, inputs))


def _load(class_name: str, folder: Path) -> Any:
    import sentence_transformers
    import torch

    library = getattr(sentence_transformers, class_name)
    return library(str(folder), device="cpu", model_kwargs={"dtype": torch.float32}).float().eval()


def _load_embedder(folder: Path) -> Answer:
    model = _load("SentenceTransformer", folder)
    return lambda item: np.asarray(model.encode([item.text]), np.float32)


def _load_reranker(folder: Path) -> Answer:
    model = _load("CrossEncoder", folder)
    return lambda item: np.asarray(model.predict([(item.text, item.second)]), np.float32).reshape(1, -1)


def _load_sparse(folder: Path) -> Answer:
    model = _load("SparseEncoder", folder)

    def encode(item: CheckInput) -> SparseEmbedding:
        found = model.encode([item.text], convert_to_sparse_tensor=True, save_to_cpu=True).coalesce()
        return SparseEmbedding(found.indices()[1].numpy(), found.values().numpy())

    return encode


def _load_multi_vector(folder: Path) -> Answer:
    model = _load("MultiVectorEncoder", folder)

    def encode(item: CheckInput) -> FloatArray:
        side = model.encode_query if item.purpose is Purpose.QUERY else model.encode_document
        return np.asarray(side([item.text], convert_to_numpy=True)[0], np.float32)

    return encode


def _load_classifier(folder: Path) -> Answer:
    import torch
    import transformers

    pipeline = transformers.pipeline(
        "text-classification", str(folder), device="cpu", dtype=torch.float32, top_k=None
    )
    labels = pipeline.model.config.id2label

    def classify(item: CheckInput) -> FloatArray:
        (found,) = pipeline([item.text], truncation=True)
        scores = {entry["label"]: entry["score"] for entry in found}
        return np.array([[scores[labels[index]] for index in range(len(labels))]], np.float32)

    return classify


def _load_token_classifier(folder: Path) -> Answer:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = transformers.AutoModelForTokenClassification.from_pretrained(str(folder), dtype=torch.float32)

    def classify(item: CheckInput) -> FloatArray:
        tokens = tokenizer(item.text, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            return np.asarray(torch.softmax(model.eval()(**tokens).logits[0], dim=-1))

    return classify


_LOADERS: dict[Task, Callable[[Path], Answer]] = {
    Task.EMBED: _load_embedder,
    Task.RERANK: _load_reranker,
    Task.CLASSIFY: _load_classifier,
    Task.CLASSIFY_TOKENS: _load_token_classifier,
    Task.SPARSE: _load_sparse,
    Task.MULTI_VECTOR: _load_multi_vector,
}
