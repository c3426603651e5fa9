"""Cohere's `/v1/embed`, `/v2/embed`, `/v1/tokenize` and `/v1/detokenize`."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

from recorded.cases import family, get, post, send

V1, V2 = "/v1/embed", "/v2/embed"
LONG = "many words " * 400
PARTS = [{"type": "text", "text": "hello"}, {"type": "text", "text": "world"}]

CASES = family(
    "cohere",
    post("v1 texts", V1, {"texts": ["hello", "world"], "model": "model/embed", "input_type": "search_document"}),
    post("v1 types", V1, {"texts": ["hello"], "embedding_types": ["float", "int8", "uint8", "binary", "ubinary"]}),
    post("v1 one type", V1, {"texts": ["hello"], "embedding_types": ["float"]}),
    post("v1 types null", V1, {"texts": ["hello"], "embedding_types": None}),
    post("v1 doubled version", "/v1/v1/embed", {"texts": ["hello"]}),
    post("v2 texts", V2, {"texts": ["hello", "world"], "model": "model/embed", "input_type": "search_query"}),
    post("v2 doubled version", "/v1/v2/embed", {"texts": ["hello"]}),
    post("v2 types", V2, {"texts": ["hello"], "embedding_types": ["ubinary", "float", "ubinary"]}),
    post("v2 base64", V2, {"texts": ["hello", "world"], "embedding_types": ["base64"]}, base64="<f4"),
    post("v2 inputs", V2, {"inputs": [{"content": PARTS}, {"content": PARTS[:1]}]}),
    post("v2 texts before inputs", V2, {"texts": ["hello"], "inputs": [{"content": PARTS}]}),
    post("v2 output_dimension", V2, {"texts": ["hello"], "output_dimension": 4}),
    post("v2 dimensions", V2, {"texts": ["hello"], "dimensions": 4}),
    post("v2 max_tokens", V2, {"texts": [LONG], "max_tokens": 5}),
    post("v2 max_tokens 0", V2, {"texts": [LONG], "max_tokens": 0}),
    post("v2 truncate START", V2, {"texts": [LONG], "truncate": "START"}),
    post("v2 truncate END", V2, {"texts": [LONG], "truncate": "END", "max_tokens": 6}),
    post("v2 texts missing", V2, {"model": "model/embed"}),
    post("v2 texts empty", V2, {"texts": []}),
    post("v2 texts a string", V2, {"texts": "hello"}),
    post("v2 texts of a number", V2, {"texts": ["hello", 1]}),
    post("v2 images", V2, {"images": ["data:image/png;base64,AAAA"]}),
    post("v2 inputs of an image", V2, {"inputs": [{"content": [{"type": "image_url", "image_url": {}}]}]}),
    post("v2 inputs without content", V2, {"inputs": [{"text": "hello"}]}),
    post("v2 inputs empty content", V2, {"inputs": [{"content": []}]}),
    post("v2 types unknown", V2, {"texts": ["hello"], "embedding_types": ["int4"]}),
    post("v2 types empty", V2, {"texts": ["hello"], "embedding_types": []}),
    post("v2 types a string", V2, {"texts": ["hello"], "embedding_types": "float"}),
    post("v2 input_type unknown", V2, {"texts": ["hello"], "input_type": "nonsense"}),
    post("v2 truncate NONE", V2, {"texts": [LONG], "truncate": "NONE"}),
    post("v2 truncate unknown", V2, {"texts": ["hello"], "truncate": "MIDDLE"}),
    post("v2 max_tokens a string", V2, {"texts": ["hello"], "max_tokens": "5"}),
    post("v2 output_dimension too many", V2, {"texts": ["hello"], "output_dimension": 9}),
    post("v2 model unknown", V2, {"texts": ["hello"], "model": "embed-english-v3.0"}),
    post("v2 model that ranks", V2, {"texts": ["hello"], "model": "model/rerank"}),
    send("v1 not JSON", V1, b"texts"),
    get("v1 read", V1),
    post("tokenize", "/v1/tokenize", {"text": "hello brave world", "model": "model/embed"}),
    post("tokenize at root", "/tokenize", {"text": "hello"}),
    post("tokenize empty", "/v1/tokenize", {"text": ""}),
    post("tokenize a number", "/v1/tokenize", {"text": 1}),
    post("tokenize model unknown", "/v1/tokenize", {"text": "hello", "model": "command"}),
    post("detokenize", "/v1/detokenize", {"tokens": [101, 7592, 2088, 102], "model": "model/embed"}),
    post("detokenize missing", "/v1/detokenize", {}),
    post("detokenize empty", "/v1/detokenize", {"tokens": []}),
    post("detokenize a string", "/v1/detokenize", {"tokens": "hello"}),
    post("detokenize of a string", "/v1/detokenize", {"tokens": [1, "a"]}),
    post("detokenize outside the vocabulary", "/v1/detokenize", {"tokens": [99999]}),
    get("detokenize read", "/v1/detokenize"),
)

REAL = family(
    "cohere",
    post("v1 texts", V1, {"texts": ["hello", "world"], "output_dimension": 8}),
    post("v2 types", V2, {"texts": ["hello"], "embedding_types": ["float", "base64"], "output_dimension": 8}, base64="<f4"),
    post("tokenize", "/v1/tokenize", {"text": "unbelievable embeddings"}),
)
