"""What any client may do, whatever its dialect: odd content types, nulls, words for flags, slashes, ids."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.http_server import (
    MODEL,
    HttpServer,
    hanging_engine,
    occupy,
    serve_in_thread,
    url,
    wait_until,
)
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill_server.base.settings import ServerSettings

# A body for each route, with nothing in it that need not be.
BODIES: dict[str, dict[str, Any]] = {
    "/embeddings": {"input": "hello"},
    "/v1/embeddings": {"input": ["hello", ""]},
    "/v1/embedding": {"input": "hello"},
    "/openai/deployments/all-MiniLM-L6-v2/embeddings": {"input": "hello"},
    "/rerank": {"query": "hello", "documents": ["world", ""]},
    "/v1/rerank": {"query": "", "documents": ["world"]},
    "/v2/rerank": {"query": "hello", "documents": ["world"]},
    "/voyage/v1/rerank": {"query": "hello", "documents": ["world"]},
    "/voyage/v1/embeddings": {"input": "hello"},
    "/openai/v1/rerank": {"query": "hello", "documents": ["world"]},
    "/pinecone/embed": {"inputs": [{"text": "hello"}]},
    "/llamafile/embedding": {"content": "hello"},
    "/embed": {"inputs": "hello"},
    "/v1/embed": {"texts": ["hello", ""]},
    "/v2/embed": {"texts": ["hello"]},
    "/score": {"text_1": "hello", "text_2": ["world"]},
    "/v1/score": {"queries": "hello", "documents": "world"},
    "/similarity": {"inputs": {"source_sentence": "hello", "sentences": ["world"]}},
    "/pooling": {"input": "hello"},
    "/tokenize": {"prompt": "hello"},
    "/v1/tokenize": {"text": "hello"},
    "/detokenize": {"tokens": [7592]},
    "/decode": {"ids": [7592]},
    "/api/embed": {"input": "hello"},
    "/api/embeddings": {"prompt": "hello"},
    "/api/rerank": {"query": "hello", "documents": ["world"]},
    "/": {"inputs": "hello"},
    "/invocations": {"inputs": "hello"},
    "/vertex": {"instances": [{"inputs": "hello"}]},
}
# What may be left out, and what nobody knows.
NULLS = dict.fromkeys(
    (
        "model",
        "encoding_format",
        "dimensions",
        "output_dimension",
        "output_dtype",
        "embedding_type",
        "embedding_types",
        "input_type",
        "task",
        "prompt_name",
        "prompt_template",
        "truncate",
        "truncation_direction",
        "truncate_prompt_tokens",
        "normalize",
        "top_n",
        "return_documents",
        "raw_scores",
        "use_activation",
        "rank_fields",
        "max_tokens_per_doc",
        "parameters",
        "options",
        "user",
        "late_chunking",
        "chunking",
        "modality",
    )
)


@pytest.mark.parametrize("path", BODIES)
def test_null_is_the_same_as_absent(client: httpx.Client, path: str) -> None:
    plain = client.post(path, json=BODIES[path])
    nulls = client.post(path, json={**NULLS, **BODIES[path], "nobody_knows": {"a": [1]}})
    assert plain.status_code == nulls.status_code == 200, nulls.text
    assert timeless(plain.json()) == timeless(nulls.json())


def timeless(document: Any) -> Any:
    """An answer without what differs from request to request."""
    if not isinstance(document, dict):
        return document
    return {
        name: value for name, value in document.items() if name not in ("id", "created", "total_duration")
    }


@pytest.mark.parametrize("path", BODIES)
def test_the_content_type_does_not_matter(client: httpx.Client, path: str) -> None:
    for content_type in (None, "text/plain", "application/x-www-form-urlencoded", "nonsense/;;"):
        request = client.build_request("POST", path, json=BODIES[path])
        del request.headers["content-type"]
        if content_type is not None:
            request.headers["content-type"] = content_type
        answer = client.send(request)
        assert answer.status_code == 200, content_type
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", BODIES)
def test_slashes_may_be_doubled_and_at_the_end(client: httpx.Client, path: str) -> None:
    for spelling in (f"/{path}", f"{path}/", f"{path}//".replace("/", "//")):
        answer = client.post(url(client, spelling), json=BODIES[path])
        assert answer.status_code == 200, spelling


@pytest.mark.parametrize("path", [path for path in BODIES if path.startswith(("/v1/", "/v2/"))])
def test_a_version_may_come_twice(client: httpx.Client, path: str) -> None:
    for version in ("/v1", "/v2"):
        assert client.post(f"{version}{path}", json=BODIES[path]).status_code == 200


def test_models_are_found_behind_two_versions_too(client: httpx.Client) -> None:
    assert client.get("/v1/v1/models").json()["data"][0]["id"] == MODEL
    assert client.get(f"/v1/v1/models/owner%2F{MODEL}").json()["id"] == MODEL


@pytest.mark.parametrize("path", [path for path in BODIES if "deployments" not in path])
def test_every_route_knows_the_model_by_all_of_its_names(client: httpx.Client, path: str) -> None:
    for name in (
        MODEL,
        MODEL.upper(),
        f"sentence-transformers/{MODEL}",
        f"{MODEL}:latest",
        f"{MODEL}___OpenAI-API",
        f"sentence-transformers/{MODEL}___VLLM",
        "default/not-specified",
        None,
    ):
        assert client.post(path, json={**BODIES[path], "model": name}).status_code == 200, name


@pytest.mark.parametrize("path", BODIES)
def test_flags_may_be_words(client: httpx.Client, path: str) -> None:
    names = ("truncate", "return_documents", "raw_scores", "return_text", "normalize", "return_token_strs")
    for flag in ("true", "True", "false", True, False):
        answer = client.post(path, json={**BODIES[path], **dict.fromkeys(names, flag)})
        assert answer.status_code == 200, (flag, answer.text)


@pytest.mark.parametrize("path", BODIES)
def test_counts_of_0_and_null_are_unset(client: httpx.Client, path: str) -> None:
    names = ("dimensions", "output_dimension", "top_n", "truncate_prompt_tokens", "max_tokens")
    plain = timeless(client.post(path, json=BODIES[path]).json())
    for count in (0, None):
        answer = client.post(path, json={**BODIES[path], **dict.fromkeys(names, count)})
        assert timeless(answer.json()) == plain, count


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/embeddings", "input"),
        ("/embed", "inputs"),
        ("/v1/embed", "texts"),
        ("/api/embed", "input"),
        ("/pooling", "input"),
    ],
)
def test_2048_inputs_are_one_request(client: httpx.Client, path: str, field: str) -> None:
    answer = client.post(path, json={field: ["hello", "", "world", "a"] * 512})
    assert answer.status_code == 200
    too_many = client.post(path, json={field: ["a"] * 2_049})
    assert too_many.status_code in (400, 422)
    assert "2048 are accepted" in too_many.text


def test_10_megabytes_are_one_request(client: httpx.Client) -> None:
    texts = ["hello" * 1_200] * 1_700
    assert client.post("/rerank", json={"query": "a", "documents": texts}).status_code == 200


@pytest.mark.parametrize(
    "authorization", ["Bearer None", "Bearer fake", "Bearer EMPTY", "raw", "Basic YTpi", ""]
)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank", "/embed"])
def test_keys_that_nobody_asked_for_are_ignored(client: httpx.Client, path: str, authorization: str) -> None:
    headers = {"authorization": authorization}
    assert client.post(path, json=BODIES[path], headers=headers).status_code == 200


@pytest.mark.parametrize("path", BODIES)
def test_the_id_of_a_request_comes_back_under_both_names(client: httpx.Client, path: str) -> None:
    sent = client.post(path, json=BODIES[path], headers={"x-request-id": "mine-1"})
    assert sent.headers["x-request-id"] == sent.headers["request-id"] == "mine-1"
    made = client.post(path, json=BODIES[path])
    assert made.headers["x-request-id"] == made.headers["request-id"] != ""
    wrong = client.post(path, content=b"{", headers={"x-request-id": "mine-2"})
    assert wrong.headers["x-request-id"] == wrong.headers["request-id"] == "mine-2"


@pytest.mark.parametrize("accepted", ["identity", "gzip, deflate, br", "*"])
def test_answers_are_never_compressed(client: httpx.Client, accepted: str) -> None:
    headers = {"accept-encoding": accepted}
    for path in ("/rerank", "/v1/embeddings"):
        answer = client.post(path, json=BODIES[path], headers=headers)
        assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/health",
        "/ping",
        "/livez",
        "/readyz",
        "/metrics",
        "/info",
        "/models",
        "/v1/models",
        f"/v1/models/{MODEL}",
        "/api/tags",
        "/api/version",
        "/openapi.json",
        "/docs",
    ],
)
def test_what_can_be_read_can_be_asked_for_its_head(client: httpx.Client, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert got.status_code == head.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/"])
def test_what_computes_is_posted_to(client: httpx.Client, path: str) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        answer = client.request(method, path)
        assert answer.status_code == 405
        assert "POST" in answer.headers["allow"]


def test_with_keys_probes_are_open_and_work_at_the_same_path_is_not() -> None:
    with serve_in_thread(ServerSettings(lame_duck_s=0, api_key=("secret",))) as server:
        for path in ("/", "/health", "/ping", "/metrics"):
            assert server.client.get(path).status_code == 200
            assert server.client.head(path).status_code == 200
        assert server.client.post("/", json=BODIES["/"]).status_code == 401
        key = {"authorization": "secret"}
        assert server.client.post("/", json=BODIES["/"], headers=key).status_code == 200


@pytest.fixture
def full() -> Iterator[HttpServer]:
    """Computes one text that never ends, and has as many waiting as it accepts."""
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=4), batch=BatchConfig(max_batch_tokens=4))
    with serve_in_thread(ServerSettings(lame_duck_s=0), config=config, engine=hanging_engine()) as server:
        threads = [occupy(server, 1)]
        wait_until(lambda: len(server.engine.calls) == 1)
        threads.append(occupy(server, 4))
        yield server
        server.engine.released.set()
        for thread in threads:
            thread.join()


@pytest.mark.promise("time-to-return")
def test_who_is_refused_is_told_when_to_come_again(full: HttpServer) -> None:
    bodies = {path: body for path, body in BODIES.items() if "token" not in path and path != "/decode"}
    for path, body in bodies.items():
        answer = full.client.post(path, json=body)
        assert answer.status_code == 429, path
        assert isinstance(answer.json()["error"], str if is_tei(path) or "/api/" in path else dict)
        assert 1 <= int(answer.headers["retry-after"]) <= 30
        assert 1 <= int(answer.headers["retry-after-ms"]) <= 30_000
        assert answer.json().get("error_type") == ("Overloaded" if is_tei(path) else None)


def is_tei(path: str) -> bool:
    return path in ("/", "/embed", "/similarity", "/invocations", "/vertex")
