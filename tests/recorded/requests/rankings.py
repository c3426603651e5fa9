"""The rerank of Mixedbread, NVIDIA, DeepInfra, Pinecone, Fireworks and Alibaba."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

from recorded.cases import family, get, post, send

TEXTS = ["world", "hello", "brave new world"]
MIXEDBREAD = {"query": "hello", "input": TEXTS}
NVIDIA = {"query": {"text": "hello"}, "passages": [{"text": text} for text in TEXTS]}
DEEPINFRA = {"queries": ["hello"], "documents": TEXTS}
DEEPINFRA_PATH = "/v1/inference/model/rerank"
PINECONE = {"query": "hello", "documents": [{"id": "a", "text": "world"}, {"id": "b", "text": "hello"}]}
PINECONE_VERSION = {"x-pinecone-api-version": "2025-04"}
ALIBABA_PATH = "/api/v1/services/rerank/text-rerank/text-rerank"
LONG = "many words " * 400

CASES = family(
    "rankings",
    post("mixedbread", "/reranking", MIXEDBREAD),
    post("mixedbread v1", "/v1/reranking", {**MIXEDBREAD, "model": "model/rerank", "top_k": 2, "return_input": True}),
    post("mixedbread objects", "/v1/reranking", {"query": "hello", "input": [{"title": "a", "text": "b"}, "hello"], "rank_fields": ["title"], "return_input": True}),
    post("mixedbread without input", "/v1/reranking", {"query": "hello"}),
    post("reranking as cohere", "/reranking", {"query": "hello", "documents": TEXTS}),
    post("nvidia", "/ranking", NVIDIA),
    post("nvidia v1", "/v1/ranking", {**NVIDIA, "model": "model/rerank", "truncate": "END"}),
    post("nvidia too long", "/v1/ranking", {"query": {"text": "hello"}, "passages": [{"text": LONG}], "truncate": "NONE"}),
    post("nvidia passage a number", "/ranking", {"query": "hello", "passages": [3]}),
    post("deepinfra", DEEPINFRA_PATH, DEEPINFRA),
    post("deepinfra a query for each", DEEPINFRA_PATH, {"queries": ["hello", "world", "hello"], "documents": TEXTS}),
    post("deepinfra other counts", DEEPINFRA_PATH, {"queries": ["hello", "world"], "documents": TEXTS}),
    post("deepinfra model unknown", "/v1/inference/nobody", DEEPINFRA),
    post("pinecone", "/pinecone/rerank", {**PINECONE, "model": "model/rerank"}),
    post("pinecone by its header", "/rerank", {**PINECONE, "top_n": 1, "return_documents": False, "parameters": {"truncate": "END"}}, headers=PINECONE_VERSION),
    post("pinecone parameters unknown", "/pinecone/rerank", {**PINECONE, "parameters": {"truncat": "END"}}),
    post("pinecone parameters wrong", "/pinecone/rerank", {**PINECONE, "parameters": {"truncate": "MIDDLE"}}),
    post("nvidia hosted", "/v1/retrieval/nvidia/llama-3_2-nv-rerankqa/reranking", {**NVIDIA, "model": "model/rerank"}),
    post("nvidia hosted by its path", "/v1/retrieval/model/rerank/reranking", NVIDIA),
    post("nvidia hosted unknown", "/v1/retrieval/nobody/reranking", NVIDIA),
    post("fireworks", "/inference/v1/rerank", {"model": "fireworks/model/rerank", "query": "hello", "documents": TEXTS, "top_n": 2}),
    post("fireworks without documents", "/inference/v1/rerank", {"model": "accounts/fireworks/models/model/rerank", "query": "hello", "documents": TEXTS, "return_documents": False}),
    post("alibaba", ALIBABA_PATH, {"model": "model/rerank", "input": {"query": "hello", "documents": TEXTS}, "parameters": {"top_n": 2, "return_documents": True}}),
    post("alibaba without parameters", ALIBABA_PATH, {"input": {"query": "hello", "documents": TEXTS}}),
    post("alibaba document a number", ALIBABA_PATH, {"input": {"query": "hello", "documents": [3]}}),
    post("alibaba without input", ALIBABA_PATH, {"parameters": {}}),
    post("alibaba input a list", ALIBABA_PATH, {"input": []}),
    post("alibaba top_n negative", ALIBABA_PATH, {"input": {"query": "hello", "documents": TEXTS}, "parameters": {"top_n": -1}}),
    post("alibaba compatible", "/compatible-api/v1/reranks", {"model": "model/rerank", "query": "hello", "documents": TEXTS, "top_n": 1}),
    post("alibaba compatible v1", "/v1/reranks", {"query": "hello", "documents": TEXTS, "return_documents": True}),
    post("alibaba compatible bare", "/reranks", {"query": "hello", "documents": TEXTS, "instruct": "i"}),
    post("cohere's check of a key", "/v1/check-api-key", {}),
    send("mixedbread not JSON", "/v1/reranking", b"input"),
    get("ranking read", "/ranking"),
)
