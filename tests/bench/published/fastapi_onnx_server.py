"""A sentence encoder in ONNX Runtime behind FastAPI: one text a request, no batches.

uvicorn imports this module in an environment without vecmill:

    VECMILL_PEER_MODEL=MODEL uvicorn --app-dir tests/bench/published --factory fastapi_onnx_server:make_app

`MODEL` is a directory with `model.onnx`, as optimum exports it, and `tokenizer.json`. ONNX Runtime has its
default settings, which use all cores. Each request is computed on the event loop: for one client, to hand it
to another thread would only take longer.
"""

import base64
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import orjson
from fastapi import FastAPI, Response
from pydantic import BaseModel
from tokenizers import Tokenizer

MODEL = "VECMILL_PEER_MODEL"
MOST_TOKENS = 256


class Request(BaseModel):  # type: ignore[misc]
    """The body of a request, as OpenAI's clients send it."""

    input: str
    model: str = ""
    encoding_format: str = "float"


def make_app() -> FastAPI:
    """Return the server of the model in the directory that the environment names."""
    folder = Path(os.environ[MODEL])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    app = FastAPI()

    def embed(text: str) -> Any:
        encoding = tokenizer.encode(text)
        mask = np.array([encoding.attention_mask], np.int64)
        given = {
            "input_ids": np.array([encoding.ids], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.array([encoding.type_ids], np.int64),
        }
        [states] = session.run(None, {name: array for name, array in given.items() if name in names})
        mean = states[0].mean(axis=0)  # one text has no padding
        return mean / np.linalg.norm(mean)

    async def answer(request: Request) -> Response:
        embedding = embed(request.input).astype(np.float32)
        is_encoded = request.encoding_format == "base64"
        value: Any = base64.b64encode(embedding.tobytes()).decode() if is_encoded else embedding.tolist()
        body = {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": value}],
            "model": request.model,
        }
        return Response(orjson.dumps(body), media_type="application/json")

    app.post("/v1/embeddings")(answer)
    return app
