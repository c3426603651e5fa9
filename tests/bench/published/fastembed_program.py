"""fastembed over bulk requests, in an environment without vecmill.

Reads JSON with `model`, `requests` and `compared` from standard input. The last line of the output is JSON
with the `seconds` of all requests and the `embeddings` of the texts in `compared`.
"""

import json
import sys
import time

from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

NAME, DIMENSIONS, BATCH = "local/bulk", 384, 32


def main() -> None:
    """Embed all texts, and print the result."""
    given = json.load(sys.stdin)
    TextEmbedding.add_custom_model(
        model=NAME,
        pooling=PoolingType.CLS,
        normalization=True,
        sources=ModelSource(hf=NAME),
        dim=DIMENSIONS,
        model_file="model.onnx",
    )
    model = TextEmbedding(NAME, specific_model_path=given["model"])
    compared = [row.tolist() for row in model.embed(given["compared"], batch_size=BATCH)]
    began = time.perf_counter()
    for texts in given["requests"]:
        for _ in model.embed(texts, batch_size=BATCH):
            pass
    print(json.dumps({"seconds": time.perf_counter() - began, "embeddings": compared}))


if __name__ == "__main__":
    main()
