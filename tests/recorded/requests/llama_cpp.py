"""The routes of llama.cpp's server: `/embedding`, `content`, `/v1/health` and `/props`."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

from recorded.cases import family, get, post, send

LONG = "many words " * 400

CASES = family(
    "llama.cpp",
    post("embedding", "/embedding", {"content": "hello"}),
    post("embedding texts", "/embedding", {"input": ["hello", "world"]}),
    post("embedding of token ids", "/embedding", {"content": [101, 7592, 102]}),
    post("embedding not normalised", "/embedding", {"content": "hello", "embd_normalize": -1}),
    post("embedding of another norm", "/embedding", {"content": "hello", "embd_normalize": 0}),
    post("embedding too long", "/embedding", {"content": LONG}),
    post("embedding nothing", "/embedding", {}),
    post("embedding model unknown", "/embedding", {"content": "hello", "model": "nobody"}),
    post("embedding model that classifies", "/embedding", {"content": "hello", "model": "model/classify"}),
    send("embedding not JSON", "/embedding", b"content"),
    get("embedding read", "/embedding"),
    post("content at embeddings", "/embeddings", {"content": ["hello", "world"]}),
    post("content at v1", "/v1/embeddings", {"content": "hello"}),
    post("content and input", "/v1/embeddings", {"content": "hello", "input": "world"}),
    post("tokenize", "/tokenize", {"content": "hello world"}),
    post("tokenize with pieces", "/tokenize", {"content": "hello world", "add_special": True, "with_pieces": True}),
    post("tokenize a number", "/tokenize", {"content": 3}),
    post("detokenize", "/detokenize", {"tokens": [7592, 2088]}),
    get("health", "/v1/health"),
    get("props", "/props"),
)
