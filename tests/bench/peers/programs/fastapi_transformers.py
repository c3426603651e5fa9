"""A FastAPI server over transformers, as a first tutorial writes it: one route, one call, no batching.

It runs in the environment of its peer, which has no vecmill: uvicorn fastapi_transformers:app, with the model
directory in MODEL. Its route is that of OpenAI's embeddings, so that one generator measures every server.
"""

import os
from typing import Any

import torch
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(os.environ["MODEL"])
model = AutoModel.from_pretrained(os.environ["MODEL"])
model.eval()

app = FastAPI()


class EmbeddingRequest(BaseModel):  # type: ignore[misc]
    """The fields of a request that the server reads."""

    input: str | list[str]


@app.post("/v1/embeddings")  # type: ignore[untyped-decorator]
def embed(request: EmbeddingRequest) -> dict[str, Any]:
    """Return the normalised mean of the last hidden states of each text."""
    texts = [request.input] if isinstance(request.input, str) else request.input
    encoded = tokenizer(
        texts, padding=True, truncation=True, max_length=tokenizer.model_max_length, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = model(**encoded).last_hidden_state
    mask = encoded["attention_mask"].unsqueeze(-1).float()
    means = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    embeddings = torch.nn.functional.normalize(means, dim=1)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": e.tolist()} for i, e in enumerate(embeddings)
        ],
    }
