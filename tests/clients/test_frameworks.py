"""Vector stores and frameworks get the plain rows and scores by their own embedders and rerankers.

As `test_packages` does it, with packages so large that all of it is at full size.
"""

from pathlib import Path

import numpy as np
import pytest

from clients.inputs import EMBEDDER, QUERY, TEXTS, UNKNOWN
from clients.tables import cases
from support.client_packages import GROUPS, Ask, drive
from support.http_server import serve_in_thread
from support.plain_http import embed
from support.server import LiveServer
from vecmill.values.aliases import FloatArray
from vecmill_server.base.settings import ServerSettings

pytestmark = pytest.mark.full

ROWS = {
    "agno": ["embed", "jina"],
    "chromadb": ["embed", "tei", "tei at the address", "ollama"],
    "dspy": ["embed"],
    "lancedb": ["ollama"],
    "lightrag": ["embed", "jina", "ollama"],
    "mem0": ["embed", "lmstudio", "ollama", "ollama pulled"],
    "pydantic_ai": ["embed", "ollama"],
    "redisvl": ["cohere", "embed"],
    "semantic_kernel": ["embed"],
}
ROWS_ONE_BY_ONE = {
    "agno": ["embed one by one", "jina one by one", "ollama one by one"],
    "dspy": ["embed one by one"],
    "mem0": ["embed one by one", "ollama one by one"],
    "semantic_kernel": ["ollama one by one"],
}
SHORT_ROWS = {
    "agno": ["embed short"],
    "mem0": ["embed short"],
    "pydantic_ai": ["embed short"],
    "semantic_kernel": ["embed short"],
}
USAGES = {
    "agno": ["usage"],
    "pydantic_ai": ["usage"],
}
NEAREST = ["chromadb", "dspy", "lancedb", "mem0", "txtai"]
PROVIDERS = ["cohere", "jina", "mixedbread.ai", "pinecone", "text-embeddings-inference", "voyage"]
NOT_FOUND = (UNKNOWN, EMBEDDER)  # a message says what was asked for, and what there is
NOT_PULLED = (UNKNOWN, "try pulling it first")
ERRORS = [
    ("agno", "error", "EmbeddingError", NOT_FOUND),
    ("agno", "error of jina", "EmbeddingError", ("404",)),  # it reads no message
    ("agno", "error of ollama", "EmbeddingError", NOT_PULLED),
    ("agno", "its own dimensions", "EmbeddingError", ("1536", "1 to 384 dimensions")),
    ("chromadb", "error", "NotFoundError", NOT_FOUND),
    ("chromadb", "error of ollama", "ResponseError", NOT_PULLED),
    ("dspy", "error", "NotFoundError", NOT_FOUND),
    ("lancedb", "error", "NotFoundError", NOT_FOUND),
    ("lancedb", "error of ollama", "ResponseError", NOT_PULLED),
    ("mem0", "error", "NotFoundError", NOT_FOUND),
    ("mem0", "error of ollama", "ResponseError", NOT_FOUND),
    ("pydantic_ai", "error", "ModelHTTPError", NOT_FOUND),
    ("semantic_kernel", "error", "ServiceResponseException", NOT_FOUND),
    ("semantic_kernel", "error of ollama", "ResponseError", NOT_PULLED),
    ("txtai", "error", "NotFoundError", NOT_FOUND),
    # It takes every answer for a ranking, whatever its status.
    ("rerankers", "error", "KeyError", ("results",)),
    ("rerankers", "error of text-embeddings-inference", "TypeError", ()),
]


@pytest.mark.parametrize(("client", "call"), cases(ROWS))
def test_rows_are_the_plain_ones(ask: Ask, rows: FloatArray, client: str, call: str) -> None:
    np.testing.assert_array_equal(np.array(ask(client, call).unwrap(), np.float32), rows)


@pytest.mark.parametrize(("client", "call"), cases(ROWS_ONE_BY_ONE))
def test_rows_of_single_texts_are_the_plain_ones(
    ask: Ask, single_rows: FloatArray, client: str, call: str
) -> None:
    np.testing.assert_array_equal(np.array(ask(client, call).unwrap(), np.float32), single_rows)


@pytest.mark.parametrize(("client", "call"), cases(SHORT_ROWS))
def test_short_rows_are_the_plain_ones(ask: Ask, zoo: LiveServer, client: str, call: str) -> None:
    expected = embed(zoo.url, TEXTS, model=EMBEDDER, dimensions=64)
    np.testing.assert_array_equal(np.array(ask(client, call).unwrap(), np.float32), expected)


@pytest.mark.parametrize(("client", "call"), cases(USAGES))
def test_usage_is_the_tokens_that_were_read(ask: Ask, tokens: int, client: str, call: str) -> None:
    assert ask(client, call).unwrap() == tokens


@pytest.mark.parametrize("client", NEAREST)
def test_a_search_finds_the_nearest_text(ask: Ask, zoo: LiveServer, rows: FloatArray, client: str) -> None:
    (query,) = embed(zoo.url, [QUERY], model=EMBEDDER)
    assert ask(client, "nearest").unwrap() == TEXTS[int(np.argmax(rows @ query))]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_rerankers_gets_the_plain_scores(ask: Ask, ranking: list[list[float]], provider: str) -> None:
    assert ask("rerankers", f"rerank {provider}").unwrap() == ranking


@pytest.mark.parametrize(("client", "call", "kind", "words"), ERRORS)
def test_errors_are_the_clients_own_with_our_words(
    ask: Ask, client: str, call: str, kind: str, words: tuple[str, ...]
) -> None:
    error = ask(client, call).raised()
    assert kind in error.types, error
    assert [word for word in words if word not in error.message] == [], error.message


def test_lancedb_sends_no_empty_text_to_openai(ask: Ask, zoo: LiveServer) -> None:
    expected = embed(zoo.url, [text for text in TEXTS if text], model=EMBEDDER)
    found = ask("lancedb", "embed").unwrap()
    assert [row is None for row in found] == [not text for text in TEXTS]
    np.testing.assert_array_equal(np.array([row for row in found if row], np.float32), expected)


def test_lancedb_gives_no_rows_where_openai_refuses(ask: Ask) -> None:
    assert ask("lancedb", "refused").unwrap() == [None] * len(TEXTS)


def test_lancedb_has_tables_of_openai_under_a_name_of_openai(tmp_path: Path) -> None:
    """It knows the dimensions of no other models."""
    settings = ServerSettings(lame_duck_s=0, alias=("text-embedding-3-small",))
    with serve_in_thread(settings) as server:
        url = f"http://127.0.0.1:{server.port}"
        found = drive("lancedb", GROUPS["lancedb"], url, tmp_path, "stored")["stored"].unwrap()
        expected = embed(url, [text for text in TEXTS if text])
    np.testing.assert_array_equal(np.array(found, np.float32), expected)


def test_txtai_normalises_the_plain_rows_once_more(ask: Ask, rows: FloatArray) -> None:
    found = np.array(ask("txtai", "embed").unwrap(), np.float32)
    np.testing.assert_allclose(found, rows, rtol=0, atol=1e-7)
