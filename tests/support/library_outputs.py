"""What a model's own library answers for a directory, found out without vecmill's description of it.

Each text is computed alone, in fp32. The library reads every setting itself: the task is all that it is told.
What it answers is recorded.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from support.references import answer, digest_directory
from vecmill.models import ModelDescription, Task
from vecmill.requests import Purpose
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding
from vecmill.verification.model_outputs import CheckInput, ModelOutputs, make_check_inputs
from vecmill.verification.reference import (
    StoredReference,
    has_library,
    load_reference,
    reference_library,
    store_outputs,
)

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


class LibraryFailure(Exception):
    """The library has no answer. The message is its own, after the name of the error."""


def compute_with_library(
    folder: Path, task: Task, inputs: Sequence[CheckInput], *, seed: int = 0
) -> ModelOutputs:
    """Return the library's answer to each input, with `seed` for what it draws. Raises `LibraryFailure`."""
    question = [digest_directory(folder), str(task), seed, _write(inputs)]
    found = answer(question, lambda: _try(folder, task, inputs, seed))
    if "failed" in found:
        raise LibraryFailure(found["failed"])
    return tuple(found["outputs"])


def store_recorded(description: ModelDescription, texts: Sequence[str], cache_dir: Path) -> StoredReference:
    """Return what the reference of a check gives for `texts`, recorded if it is a library."""
    if not has_library(description):
        return store_outputs(load_reference(description, cache_dir), description, texts)
    inputs = make_check_inputs(description, texts)
    outputs = answer(
        ["check", digest_directory(description.directory), str(description.task), _write(inputs)],
        lambda: load_reference(description, cache_dir).outputs_for(inputs),
    )
    return StoredReference(reference_library(description), inputs, tuple(outputs))


def _write(inputs: Sequence[CheckInput]) -> list[list[str | None]]:
    return [[item.text, item.second, str(item.purpose)] for item in inputs]


def _try(folder: Path, task: Task, inputs: Sequence[CheckInput], seed: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import torch
        from transformers.utils import logging

        import support.own_code_models  # noqa: F401 - it tells transformers of its classes

        logging.set_verbosity(logging.CRITICAL)
        logging.disable_progress_bar()
        torch.manual_seed(seed)
        try:
            compute = _LOADERS[task](folder)
            return {"outputs": [compute(item) for item in inputs]}
        except Exception as error:
            return {"failed": _describe(error, folder)}


def _describe(error: Exception, folder: Path) -> str:
    """Return what an error says, without what another run would say otherwise."""
    message = re.sub(r"0x[0-9a-f]+", "0x", str(error).replace(str(folder), "the directory"))
    return f"{type(error).__name__}: {message}"


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
