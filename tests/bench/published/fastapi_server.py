"""A text classifier of transformers behind FastAPI: one text a request, no batches.

gunicorn imports this module in an environment without vecmill:

    gunicorn --pythonpath tests/bench/published 'fastapi_server:make_app("MODEL")'
"""

import warnings
from typing import Any

import torch
import transformers
from fastapi import FastAPI
from pydantic import BaseModel


class Request(BaseModel):  # type: ignore[misc]
    """The body of a request."""

    inputs: str


def make_app(model: str, *, is_tuned: bool = False, is_quantized: bool = False) -> FastAPI:
    """Return the server of the classifier in the directory `model`.

    With `is_tuned`, torch uses one thread, and requests are computed in FastAPI's threads instead of on the
    event loop. With `is_quantized`, the linear layers are quantised to int8 at run time.
    """
    if is_tuned:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    classify = transformers.pipeline("text-classification", model=model)
    if is_quantized:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch 2.13 names a successor, which is another package
            classify.model = torch.ao.quantization.quantize_dynamic(
                classify.model, {torch.nn.Linear}, dtype=torch.qint8
            )
    app = FastAPI()

    def predict(request: Request) -> Any:
        return classify(request.inputs)

    async def predict_on_event_loop(request: Request) -> Any:
        return classify(request.inputs)

    app.post("/predict")(predict if is_tuned else predict_on_event_loop)
    return app
