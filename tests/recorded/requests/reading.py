"""What computes nothing: models, probes, the description and its page; and paths and methods that are not there."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

from recorded.cases import Case, ask, family, get, post

MODELS = family(
    "models",
    get("all", "/v1/models"),
    get("all at root", "/models"),
    get("all with a slash", "/v1/models/"),
    get("one", "/v1/models/model/embed"),
    get("one at root", "/models/model/rerank"),
    get("one escaped", "/v1/models/model%2Fclassify"),
    get("one without owner", "/v1/models/sparse"),
    get("unknown", "/v1/models/nobody"),
    get("info", "/info"),
    get("accuracy", "/v1/accuracy/model/embed"),
    get("accuracy escaped", "/v1/accuracy/model%2Fsparse"),
    get("accuracy of nobody", "/v1/accuracy/nobody"),
    ask("accuracy, posted", "POST", "/v1/accuracy/model/embed"),
    ask("all, head", "HEAD", "/v1/models"),
    ask("all, posted", "POST", "/v1/models"),
    ask("one, deleted", "DELETE", "/v1/models/model/embed"),
    ask("info, posted", "POST", "/info"),
)

REAL_MODELS = family(
    "models",
    get("all", "/v1/models"),
    get("one", "/v1/models/all-MiniLM-L6-v2"),
    get("one with owner", "/models/sentence-transformers/all-MiniLM-L6-v2"),
    # The rest of its accuracy is that of a check whose record the cache of the user may have.
    get("info", "/info", keep=("model_id", "model_dtype", "model_type", "max_input_length", "accuracy > engine", "accuracy > optimized")),
    get("ready", "/readyz"),
)

PROBES = family(
    "probes",
    get("livez", "/livez"),
    get("readyz", "/readyz"),
    get("health", "/health"),
    get("ping", "/ping"),
    get("root", "/"),
    ask("livez, head", "HEAD", "/livez"),
    ask("root, head", "HEAD", "/"),
    ask("readyz, posted", "POST", "/readyz"),
    ask("root, put", "PUT", "/"),
    ask("ping, deleted", "DELETE", "/ping"),
    ask("metrics, head", "HEAD", "/metrics"),
    ask("metrics, posted", "POST", "/metrics"),
)

DOCS = family(
    "docs",
    get("description", "/openapi.json", file="openapi.json"),
    get("page", "/docs"),
    get("style", "/docs/swagger-ui.css"),
    get("script", "/docs/swagger-ui-bundle.js"),
    get("start", "/docs/start.js"),
    get("unknown part", "/docs/secrets"),
    ask("description, posted", "POST", "/openapi.json"),
    ask("page, head", "HEAD", "/docs"),
)

NOWHERE = family(
    "nowhere",
    get("read", "/nowhere"),
    post("posted", "/v1/chat/completions", {"messages": []}),
    post("wrong version", "/v2/embeddings", {"input": "hello"}),
    post("deeper", "/v1/embeddings/x", {"input": "hello"}),
    post("capitals", "/V1/Embeddings", {"input": "hello"}),
    ask("options", "OPTIONS", "/v1/embeddings"),
    ask("put", "PUT", "/v1/embeddings"),
    ask("patch", "PATCH", "/rerank"),
    ask("delete", "DELETE", "/v1/embeddings"),
    ask("head", "HEAD", "/v1/embeddings"),
    ask("head of nothing", "HEAD", "/nowhere"),
    ask("put of both", "PUT", "/v1/batches"),
)

# Batches are off.
BATCHES_OFF = family(
    "batches off",
    get("files", "/v1/files"),
    get("file", "/v1/files/file-1"),
    get("content", "/files/file-1/content"),
    ask("deleted file", "DELETE", "/openai/files/file-1"),
    post("batch", "/v1/batches", {"input_file_id": "file-1", "endpoint": "/v1/embeddings"}),
    get("batches", "/openai/v1/batches"),
    get("one batch", "/batches/batch_1"),
    ask("cancelled", "POST", "/v1/batches/batch_1/cancel"),
)

# Every path that computes: what is no JSON, names no model that is there, or asks nothing.
COMPUTING = (
    "/v1/embeddings",
    "/embeddings",
    "/v1/embedding",
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/embed",
    "/v1/embed",
    "/v2/embed",
    "/score",
    "/v1/score",
    "/classify",
    "/v1/classify",
    "/predict",
    "/similarity",
    "/embed_sparse",
    "/embed_all",
    "/pooling",
    "/v1/pooling",
    "/tokenize",
    "/v1/tokenize",
    "/detokenize",
    "/v1/detokenize",
    "/decode",
    "/api/embed",
    "/api/embeddings",
    "/openai/deployments/model/embed/embeddings",
    "/openai/v1/embeddings",
    "/",
    "/invocations",
    "/vertex",
)


def _each(path: str) -> tuple[Case, ...]:
    content = {"content-type": "application/json"}
    return (
        Case(f"{path} a list", "POST", path, b"[]", content),
        Case(f"{path} nothing asked", "POST", path, b"{}", content),
        Case(f"{path} compressed", "POST", path, b"", {**content, "content-encoding": "br"}),
        Case(f"{path} deadline", "POST", path, b"{}", {**content, "x-request-timeout-ms": "-1"}),
        Case(f"{path} deleted", "DELETE", path),
    )


EACH_PATH = family("each", *(case for path in COMPUTING for case in _each(path)))
