"""Routes beside the main ones: of Pinecone, Alibaba, DeepInfra, Azure, Fireworks, llamafile, Weaviate and NVIDIA."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

from recorded.cases import ask, family, get, post

TEXTS = ["hello", "world"]
RANKING = {"query": "hello", "documents": ["hello", "world", "a"], "model": "model/rerank"}
ALIBABA = "/api/v1/services/embeddings/text-embedding/text-embedding"

CASES = family(
    "sides",
    post("azure foundry", "/models/embeddings?api-version=2024-05-01-preview", {"input": TEXTS}),
    get("azure foundry info", "/models/info"),
    post("azure rerank", "/openai/v1/rerank", RANKING),
    post("azure cohere rerank", "/providers/cohere/v2/rerank", RANKING),
    post("fireworks embeddings", "/inference/v1/embeddings", {"input": TEXTS}),
    post("deepinfra embeddings", "/v1/openai/embeddings", {"input": TEXTS}),
    post("deepinfra embed", "/v1/inference/model/embed", {"inputs": TEXTS}),
    post("deepinfra normalize", "/v1/inference/model/embed", {"inputs": TEXTS, "normalize": True}),
    post("deepinfra image", "/v1/inference/model/embed", {"inputs": TEXTS, "image": "a"}),
    post("deepinfra limit", "/v1/inference/model/rerank", {"queries": ["a"], "documents": ["b"], "top_n": 1}),
    post("alibaba embeddings", "/compatible-mode/v1/embeddings", {"input": TEXTS}),
    post("alibaba embed", ALIBABA, {"input": {"texts": TEXTS}, "parameters": {"text_type": "query", "dimension": 4, "x": 1}}),
    post("alibaba embed nothing", ALIBABA, {"parameters": {}}),
    post("alibaba embed sparse", ALIBABA, {"input": {"texts": TEXTS}, "parameters": {"output_type": "sparse"}}),
    post("pinecone embed", "/embed", {"inputs": [{"text": "hello"}], "parameters": {"input_type": "query", "x": 1}}, headers={"x-pinecone-api-version": "2025-10"}),
    post("pinecone sparse", "/pinecone/embed", {"inputs": TEXTS, "model": "model/sparse"}),
    post("pinecone parameters", "/pinecone/embed", {"inputs": TEXTS, "parameters": 3}),
    get("pinecone models", "/pinecone/models"),
    get("pinecone dense models", "/pinecone/models?type=embed&vector_type=dense"),
    get("pinecone model", "/pinecone/models/model/rerank"),
    get("pinecone unknown model", "/pinecone/models/nobody"),
    post("llamafile", "/llamafile/embedding", {"content": "hello"}),
    post("llamafile list", "/llamafile/embedding", {"content": TEXTS}),
    *(get(f"list {path}", path) for path in ("/openai/v1/models", "/openai/models", "/v1/openai/models", "/compatible-mode/v1/models", "/inference/v1/models")),
    *(get(f"one {path}", f"{path}/model/embed") for path in ("/openai/v1/models", "/openai/models", "/v1/openai/models", "/compatible-mode/v1/models", "/inference/v1/models")),
    get("version", "/version"),
    get("meta", "/meta"),
    *(get(f"probe {path}", path) for path in ("/.well-known/live", "/.well-known/ready", "/v1/health/live", "/v1/health/ready")),
    ask("options", "OPTIONS", "/"),
    post("refused openai", "/v1/chat/completions", {}),
    post("refused ollama", "/api/chat", {}),
    post("refused llama.cpp", "/completion", {}),
    ask("catch-all, patched", "PATCH", "/v1/models/nobody/x"),
)
