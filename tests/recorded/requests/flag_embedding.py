"""`/encode`, the route with FlagEmbedding's names."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

from recorded.cases import family, get, post, send

CASES = family(
    "flag_embedding",
    post("encode", "/encode", {"sentences": ["hello", "brave world"]}),
    post("encode a text", "/v1/encode", {"sentences": "hello", "return_sparse": False}),
    post("encode sparse", "/encode", {"sentences": "hello", "return_dense": False, "return_sparse": True, "model": "model/sparse"}),
    post("encode vectors", "/encode", {"sentences": "hello", "return_dense": False, "return_colbert_vecs": True, "model": "model/multi_vector"}),
    post("encode with more outputs than the model has", "/encode", {"sentences": "hello", "return_sparse": True, "model": "model/embed"}),
    post("encode nothing", "/encode", {"sentences": "hello", "return_dense": False}),
    post("encode missing", "/encode", {}),
    post("encode a flag of no kind", "/encode", {"sentences": "hello", "return_sparse": 1}),
    post("encode model unknown", "/encode", {"sentences": "hello", "model": "nobody"}),
    send("encode not JSON", "/encode", b"sentences"),
    get("encode read", "/encode"),
    post("rerank with weights of a model without heads", "/rerank", {"query": "a", "documents": ["b"], "weights": [1, 1, 1], "model": "model/embed"}),
    post("rerank with two weights", "/rerank", {"query": "a", "documents": ["b"], "weights": [1, 1]}),
)
