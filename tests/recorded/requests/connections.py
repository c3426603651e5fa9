"""What is refused before a route sees it, what a server cannot do now, and what its settings change."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

from pathlib import Path

from recorded.cases import Case, ask, family, get, post, raw, send

NOT_HTTP = Path(__file__).parents[2] / "http/corpus"
HELLO = {"input": "hello"}
PATH = "/v1/embeddings"
HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n"

RAW = family(
    "connection",
    *(raw(path.stem, path.read_bytes()) for path in sorted(NOT_HTTP.glob("*.http"))),
    raw("headers too large", HEAD + b"x-large: " + b"a" * 20_000 + b"\r\n\r\n"),
    raw("body too large", HEAD + b"content-length: 99999999\r\nexpect: 100-continue\r\n\r\n"),
)

# Headers and bodies have to come at once.
HASTY = family(
    "connection",
    raw("headers that do not come", HEAD),
    raw("body that does not come", HEAD + b"content-length: 18\r\n\r\n{"),
)

# Small limits on everything.
LIMITED = family(
    "limits",
    post("many texts", PATH, {"input": ["a"] * 6}),
    post("a long text", PATH, {"input": "a" * 101}),
    post("many characters", PATH, {"input": ["a" * 90, "b" * 90, "c" * 90]}),
    post("many tokens", PATH, {"input": ["a b c d e f g h"] * 3}),
    post("never enough room", PATH, {"input": ["a", "b", "c", "d", "e"]}),
    post("a large body", PATH, {"input": "a" * 3000}),
    post("a large body for tei", "/embed", {"inputs": "a" * 3000}),
    post("many texts for tei", "/embed", {"inputs": ["a"] * 6}),
    post("never enough room for tei", "/embed", {"inputs": ["a", "b", "c", "d", "e"]}),
    post("many documents", "/rerank", {"query": "a", "documents": ["a"] * 6}),
    post("many texts for ollama", "/api/embed", {"input": ["a"] * 6}),
    post("many texts for cohere", "/v2/embed", {"texts": ["a"] * 6}),
    post("many texts for similarity", "/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"] * 6}}),
    post("many instances", "/vertex", {"instances": [{"inputs": "a"}] * 6}),
    post("a long text to tokenize", "/tokenize", {"inputs": "a" * 101}),
    post("many tokens to spell", "/decode", {"ids": [[101]] * 6}),
    get("a large header", "/livez", headers={"x-large": "a" * 2000}),
    post("enough", PATH, {"input": ["a", "b"]}),
    get("info", "/info"),
)

KEY = {"authorization": "Bearer secret"}
KEYS = family(
    "keys",
    post("bearer", PATH, HELLO, headers=KEY),
    post("bearer in small letters", PATH, HELLO, headers={"authorization": "bearer secret"}),
    post("bare", PATH, HELLO, headers={"authorization": "secret"}),
    post("api-key", PATH, HELLO, headers={"api-key": "another"}),
    post("wrong and right", PATH, HELLO, headers={"authorization": "Bearer wrong", "api-key": "secret"}),
    post("missing", PATH, HELLO),
    post("wrong", PATH, HELLO, headers={"authorization": "Bearer wrong"}),
    post("wrong api-key", PATH, HELLO, headers={"api-key": "wrong"}),
    post("basic", PATH, HELLO, headers={"authorization": "Basic c2VjcmV0"}),
    post("empty", PATH, HELLO, headers={"authorization": "Bearer"}),
    post("missing for tei", "/embed", {"inputs": "hello"}),
    post("missing for ollama", "/api/embed", {"input": "hello"}),
    post("missing for cohere", "/v2/embed", {"texts": ["hello"]}),
    post("missing without a route", "/", {"inputs": "hello"}),
    get("missing for models", "/v1/models"),
    get("models", "/v1/models", headers=KEY),
    get("missing for info", "/info"),
    get("missing for files", "/v1/files"),
    get("missing nowhere", "/nowhere"),
    get("nowhere", "/nowhere", headers=KEY),
    get("missing for the page", "/docs"),
    get("livez", "/livez"),
    get("readyz", "/readyz"),
    get("health", "/health"),
    get("ping", "/ping"),
    get("root", "/"),
    ask("health, posted", "POST", "/health"),
    get("missing for the description", "/openapi.json", keep=("info > title",)),
    get(
        "description",
        "/openapi.json",
        headers=KEY,
        keep=(
            "components > securitySchemes",
            "paths > /v1/embeddings > post > security",
            "paths > /v1/embeddings > post > responses > 401",
            "paths > / > get",
            "paths > /embed > post > responses > 401",
        ),
    ),
)

ALIASES = family(
    "aliases",
    *(
        post(name, PATH, {**HELLO, "model": name})
        for name in ("text-embedding-3-small", "TEXT-EMBEDDING-3-SMALL", "openai/text-embedding-3-small", "model/embed", "another", "ranker")
    ),
    post("ranker ranks", "/rerank", {"query": "a", "documents": ["b"], "model": "ranker"}),
    get("models", "/v1/models"),
    get("by its alias", "/v1/models/text-embedding-3-small"),
    get("tags", "/api/tags"),
)

PREFIX = family(
    "prefix",
    post("embeddings", "/a/b/v1/embeddings", HELLO),
    post("slashes", "/a/b//v1//embeddings/", HELLO),
    get("readyz", "/a/b/readyz"),
    get("root", "/a/b"),
    get("page", "/a/b/docs"),
    get("start", "/a/b/docs/start.js"),
    get("description", "/a/b/openapi.json", keep=("servers", "info > title", "openapi")),
    get("without", "/readyz"),
    get("half of it", "/a/readyz"),
    get("longer", "/a/bc/readyz"),
    post("without, posted", PATH, HELLO),
)

ORIGIN = {"origin": "https://here.example"}
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
ORIGINS = family(
    "origins",
    ask("asked", "OPTIONS", PATH, headers={**ORIGIN, **PREFLIGHT}),
    ask("asked from elsewhere", "OPTIONS", PATH, headers={"origin": "https://there.example", **PREFLIGHT}),
    ask("asked for another method", "OPTIONS", PATH, headers={**ORIGIN, "access-control-request-method": "PUT"}),
    post("answer", PATH, HELLO, headers=ORIGIN),
    send("error", PATH, b"{", headers=ORIGIN),
    post("from elsewhere", PATH, HELLO, headers={"origin": "https://there.example"}),
    get("nowhere", "/nowhere", headers=ORIGIN),
    ask("options without an origin", "OPTIONS", PATH),
)

# Every route that asks a model, with something to ask.
WORK = {
    "/v1/embeddings": HELLO,
    "/rerank": {"query": "hello", "documents": ["world"]},
    "/v2/embed": {"texts": ["hello"]},
    "/embed": {"inputs": "hello"},
    "/similarity": {"inputs": {"source_sentence": "hello", "sentences": ["world"]}},
    "/score": {"text_1": "hello", "text_2": "world"},
    "/pooling": HELLO,
    "/api/embed": HELLO,
    "/api/embeddings": {"prompt": "hello"},
    "/vertex": {"instances": [{"inputs": "hello"}]},
    "/tokenize": {"inputs": "hello"},
    "/v1/tokenize": {"text": "hello"},
    "/detokenize": {"tokens": [101]},
}
EACH_WORK = tuple(post(path, path, body) for path, body in WORK.items())
PROBES = (
    get("livez", "/livez"),
    get("readyz", "/readyz"),
    get("health", "/health"),
    ask("root, head", "HEAD", "/"),
    get("info", "/info"),
    get("models", "/v1/models"),
    get("tags", "/api/tags"),
)

LOADING = family("loading", *EACH_WORK, *PROBES)
STOPPING = family("stopping", *EACH_WORK[:4], *PROBES[:5], get("nowhere", "/nowhere"))

# The engine's calls: 0 succeeds, 1 raises, 2 is not finite, 3 is one row short; "poison" always raises; at last the
# lane dies.
FAULTY = family(
    "faults",
    post("well", PATH, {"input": "before"}),
    post("raised", PATH, {"input": "one"}),
    post("not finite", PATH, {"input": "two"}),
    post("short", PATH, {"input": "three"}),
    post("poison", PATH, {"input": "poison"}),
    post("poison among others", PATH, {"input": ["a", "poison", "b"]}),
    post("poison for tei", "/embed", {"inputs": "poison"}),
    post("poison for ollama", "/api/embed", {"input": "poison"}),
    post("poison for rerank", "/rerank", {"query": "a", "documents": ["poison"]}),
    post("poison for vertex", "/vertex", {"instances": [{"inputs": "poison"}]}),
    post("well again", PATH, {"input": "after"}),
    get("ready", "/readyz"),
)
# The first call takes its lane, the only one, down: its thread dies, or its device is lost.
DYING = family(
    "faults",
    post("died", PATH, HELLO),
    post("none left", PATH, HELLO),
    post("none left for tei", "/embed", {"inputs": "hello"}),
    get("readyz", "/readyz"),
    get("livez", "/livez"),
    get("models", "/v1/models"),
)

# The same, and the lane is replaced.
REPLACED = family(
    "faults",
    post("died", PATH, HELLO),
    post("replaced", PATH, HELLO),
    get("readyz", "/readyz"),
    get("livez", "/livez"),
)

# The only lane hangs, and the queue is full but for one text.
# The deadlines pass while the texts wait, not before: a busy machine may take 100 ms to admit them.
STUCK = family(
    "stuck",
    post("deadline", PATH, {"input": "late"}, headers={"x-request-timeout-ms": "250"}),
    post("deadline for tei", "/embed", {"inputs": "late"}, headers={"x-request-timeout-ms": "250"}),
    post("deadline for ollama", "/api/embed", {"input": "late"}, headers={"x-request-timeout-ms": "250"}),
    post("full", PATH, {"input": ["one", "two"]}),
    post("full for tei", "/embed", {"inputs": ["one", "two"]}),
    post("full for ollama", "/api/embed", {"input": ["one", "two"]}),
    post("full for cohere", "/v2/embed", {"texts": ["one", "two"]}),
    post("full for rerank", "/rerank", {"query": "one", "documents": ["two", "three"]}),
    post("full for vertex", "/vertex", {"instances": [{"inputs": ["one", "two"]}]}),
    post("never enough room", PATH, {"input": ["a", "b", "c", "d", "e", "f", "g"]}),
    get("models", "/v1/models"),
    get("readyz", "/readyz"),
)

# Each engine call takes a quarter of a second on the models' clock.
TIMED = family(
    "timings",
    post("embeddings", PATH, HELLO),
    post("rerank", "/rerank", {"query": "hello", "documents": ["world"]}),
    post("cohere", "/v2/embed", {"texts": ["hello"]}),
    post("tei", "/embed", {"inputs": "hello"}),
    post("similarity", "/similarity", {"inputs": {"source_sentence": "hello", "sentences": ["world"]}}),
    post("ollama", "/api/embed", HELLO),
    post("vertex", "/vertex", {"instances": [{"inputs": "hello"}]}),
    post("score", "/score", {"text_1": "hello", "text_2": "world"}),
    post("tokenize", "/tokenize", {"inputs": "hello"}),
)

# What other servers' dashboards count.
COUNTED = family(
    "counted",
    post("embeddings", PATH, HELLO),
    post("embeddings refused", PATH, {"input": []}),
    post("rerank", "/rerank", {"query": "hello", "documents": ["world"]}),
    post("predict", "/predict", {"inputs": "hello"}),
    post("unsupported", "/predict", {"inputs": "hello", "model": "model/embed"}),
    post("tei", "/embed", {"inputs": ["hello", "world"]}),
    get("models", "/v1/models"),
    get("nowhere", "/nowhere"),
    send("not JSON", PATH, b"{"),
)

NATIVE_DESCRIPTION: tuple[Case, ...] = (
    get(
        "description",
        "/openapi.json",
        keep=tuple(
            f"components > schemas > {name}"
            for name in ("EmbeddingsRequest > properties > input", "TeiEmbedRequest > properties > inputs")
        ),
    ),
)
