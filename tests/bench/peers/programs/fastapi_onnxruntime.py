"""A FastAPI server over ONNX Runtime and tokenizers, without torch: one route, one call, no batching.

It runs in the environment of its peer, which has no vecmill: uvicorn fastapi_onnxruntime:app, with the model
directory in MODEL. Its route is that of OpenAI's embeddings, so that one generator measures every server.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer

directory = Path(os.environ["MODEL"])
MAX_TOKENS = json.loads((directory / "sentence_bert_config.json").read_text("utf-8"))["max_seq_length"]
tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
tokenizer.enable_truncation(MAX_TOKENS)
tokenizer.enable_padding()
session = onnxruntime.InferenceSession(str(directory / "onnx/model.onnx"), providers=["CPUExecutionProvider"])
inputs = {each.name for each in session.get_inputs()}

app = FastAPI()


class EmbeddingRequest(BaseModel):  # type: ignore[misc]
    """The fields of a request that the server reads."""

    input: str | list[str]


@app.post("/v1/embeddings")  # type: ignore[untyped-decorator]
def embed(request: EmbeddingRequest) -> dict[str, Any]:
    """Return the normalised mean of the last hidden states of each text."""
    texts = [request.input] if isinstance(request.input, str) else request.input
    encoded = tokenizer.encode_batch(texts)
    mask = np.array([each.attention_mask for each in encoded], np.int64)
    feed = {
        "input_ids": np.array([each.ids for each in encoded], np.int64),
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(mask),
    }
    hidden = session.run(None, {name: feed[name] for name in inputs})[0]
    weights = mask[:, :, np.newaxis].astype(np.float32)
    means = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    embeddings = means / np.linalg.norm(means, axis=1, keepdims=True)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": e.tolist()} for i, e in enumerate(embeddings)
        ],
    }
