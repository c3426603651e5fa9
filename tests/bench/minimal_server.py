"""The least that a request can cost: starlette, orjson, and the tokenizer of the embedded model; no queue.

    python -m bench.minimal_server serve --port 8080

The answer has one vector that is always the same.
"""

import argparse
import base64

import numpy as np
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tokenizers import Tokenizer

from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model

DIM = 384


def make_app() -> Starlette:
    tokenizer = Tokenizer.from_file(str(describe_model(locate_model(None)).tokenizer_file))
    tokenizer.no_padding()
    vector = np.linspace(-1, 1, DIM, dtype=np.float32)

    async def embed(request: Request) -> Response:
        body = orjson.loads(await request.body())
        tokens = len(tokenizer.encode(body["input"]).ids)
        embedding = base64.b64encode(vector.tobytes()).decode("ascii")
        data = [{"object": "embedding", "index": 0, "embedding": embedding}]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        answer = {"object": "list", "data": data, "model": body.get("model"), "usage": usage}
        return Response(orjson.dumps(answer), media_type="application/json")

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ready")

    return Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"]), Route("/readyz", ready)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--port", type=int, required=True)
    options, _ = parser.parse_known_args()  # it has no other option of the server
    uvicorn.run(make_app(), port=options.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
