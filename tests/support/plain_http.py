"""The plainest client there is: JSON over the standard library, to compare the others with."""

import json
import urllib.request
from typing import Any

import numpy as np

from vecmill.values.aliases import FloatArray


def get(url: str) -> Any:
    """The JSON at `url`."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def post(url: str, body: dict[str, Any], *, timeout_s: float = 60) -> Any:
    """The JSON that answers `body`."""
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return json.load(answer)


def embed(base_url: str, texts: list[str], **options: Any) -> FloatArray:
    """Plain JSON floats for `texts`, (texts, dim)."""
    answer = post(f"{base_url}/v1/embeddings", {"input": texts, "encoding_format": "float", **options})
    return np.array([entry["embedding"] for entry in answer["data"]], np.float32)
