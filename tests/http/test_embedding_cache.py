"""The embedding cache over HTTP: equal answers, owners apart, restarts, damage, metrics and headers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.batches import create_batch, ended, lines_of, request_line
from support.cached_embeddings import file_in
from support.http_server import MODEL, PATIENCE_S, QUIET, HttpServer, serve_in_thread
from support.server import live_server

HEADER = "x-cached-inputs"
LONG = "hello " * 300
TEXTS = ["a", "b", LONG]
# A request of each dialect that embeds, for three texts.
BODIES: Mapping[str, Mapping[str, Any]] = {
    "/v1/embeddings": {"input": TEXTS},
    "/v2/embed": {"texts": TEXTS, "embedding_types": ["float", "ubinary"]},
    "/embed": {"inputs": TEXTS, "truncate": True},
    "/api/embed": {"input": TEXTS},
    "/pooling": {"input": TEXTS},
    "/vertex": {"instances": [{"inputs": text, "truncate": True} for text in TEXTS]},
    "/invocations": {"inputs": TEXTS},
    "/encode": {"sentences": TEXTS},
    "/openai/deployments/any/embeddings": {"input": TEXTS},
}


@pytest.fixture(scope="module")
def plain() -> Iterator[HttpServer]:
    with serve_in_thread(replace(QUIET, alias=("any",))) as server:
        yield server


@pytest.fixture(scope="module")
def cached() -> Iterator[HttpServer]:
    with serve_in_thread(replace(QUIET, alias=("any",), result_cache_memory_bytes=10**7)) as server:
        yield server


def without_times(value: Any) -> Any:
    """The body of an answer, without ids and times."""
    if isinstance(value, dict):
        varying = {"id", "created", "total_duration", "load_duration"}
        return {name: without_times(each) for name, each in value.items() if name not in varying}
    return [without_times(each) for each in value] if isinstance(value, list) else value


@pytest.mark.promise("never-an-old-vector")
@pytest.mark.parametrize("path", BODIES)
def test_answers_of_every_dialect_are_the_same(plain: HttpServer, cached: HttpServer, path: str) -> None:
    expected = plain.client.post(path, json=BODIES[path])
    assert expected.status_code == 200, expected.text
    both = [cached.client.post(path, json=BODIES[path]) for _ in range(2)]
    for found in both:
        assert without_times(found.json()) == without_times(expected.json())
        assert found.headers.get("x-truncated-inputs") == expected.headers.get("x-truncated-inputs")
        assert found.headers.get("x-compute-tokens") == expected.headers.get("x-compute-tokens")
    assert HEADER not in expected.headers
    assert both[1].headers[HEADER] == "3"


def test_hits_misses_and_bytes_are_counted(cached: HttpServer) -> None:
    names = ("vecmill_result_cache_hits_total", "vecmill_result_cache_misses_total")
    labels: Sequence[dict[str, str]] = ({"model": MODEL, "place": "memory"}, {"model": MODEL})
    before = [cached.metric(name, **of) for name, of in zip(names, labels, strict=True)]
    size = cached.metric("vecmill_result_cache_bytes", place="memory")
    admitted = cached.metric("vecmill_texts_admitted_total", model=MODEL)
    for texts in (["new 1", "new 2"], ["new 1", "new 2", "new 3"]):
        cached.client.post("/v1/embeddings", json={"input": texts})
    after = [cached.metric(name, **of) for name, of in zip(names, labels, strict=True)]
    assert [one - other for one, other in zip(after, before, strict=True)] == [2, 3]
    assert cached.metric("vecmill_result_cache_bytes", place="memory") > size
    assert cached.metric("vecmill_texts_admitted_total", model=MODEL) == admitted + 3


@pytest.mark.promise("never-an-old-vector", "owners-apart")
def test_a_key_finds_its_own_results_only(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("search key-1\nsearch key-2\ningest key-3\n")
    settings = replace(
        QUIET,
        api_key_file=tmp_path / "keys",
        api_key=("key-4", "key-5"),
        batch_dir=tmp_path / "batches",
        result_cache_dir=tmp_path / "results",
    )
    with serve_in_thread(settings) as server:

        def hits(key: str, path: str = "/v1/embeddings", **body: Any) -> str | None:
            answer = server.client.post(
                path, json=body or {"input": "secret"}, headers={"authorization": f"Bearer {key}"}
            )
            assert answer.status_code == 200, answer.text
            found: str | None = answer.headers.get(HEADER)
            return found

        assert [hits(key) for key in ("key-1", "key-3", "key-4", "key-5")] == [None] * 4
        assert [hits(key) for key in ("key-1", "key-2", "key-3", "key-4", "key-5")] == ["1"] * 5
        # A composite request is for its owner too.
        hits("key-1", "/vertex", instances=[{"inputs": "of one"}])
        assert [hits(key, input="of one") for key in ("key-3", "key-4", "key-2")] == [None, None, "1"]
        # So is a line of a batch.
        headers = {"authorization": "Bearer key-1"}
        with httpx.Client(base_url=server.client.base_url, headers=headers, timeout=PATIENCE_S) as client:
            batch = ended(client, create_batch(client, [request_line("a", {"input": "in a batch"})]))
            assert len(lines_of(client, batch["output_file_id"])) == 1
        assert [hits(key, input="in a batch") for key in ("key-3", "key-4", "key-2")] == [None, None, "1"]


def test_without_keys_requests_and_batches_find_each_others_results(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, result_cache_memory_bytes=10**7)) as server:
        lines = [request_line("a", {"input": "in a batch"})]
        ended(server.client, create_batch(server.client, lines))
        answer = server.client.post("/v1/embeddings", json={"input": "in a batch"})
        assert answer.headers.get(HEADER) == "1"


def embed(url: str, texts: Sequence[str]) -> tuple[Any, int]:
    """Embeddings of a live server, and how many of them it had kept."""
    answer = httpx.post(f"{url.rstrip('/')}/v1/embeddings", json={"input": texts}, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return ([each["embedding"] for each in body["data"]], body["usage"]), int(answer.headers.get(HEADER, 0))


@pytest.mark.promise("never-an-old-vector")
def test_results_survive_a_restart(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(20)]
    arguments = ["--engine", "fake", "--result-cache-dir", str(tmp_path / "results")]
    with live_server(tmp_path, arguments=arguments) as server:
        computed, hits = embed(server.url, texts)
        assert hits == 0
    with live_server(tmp_path, arguments=arguments) as server:
        assert embed(server.url, texts) == (computed, 20)
        page = httpx.get(f"{server.url}/metrics").text
    assert f'vecmill_result_cache_hits_total{{model="{MODEL}",place="disk"}} 20.0' in page
    assert f'vecmill_texts_admitted_total{{model="{MODEL}"}} 0.0' in page
    assert b"text 1" not in file_in(tmp_path / "results").read_bytes()


@pytest.mark.promise("never-an-old-vector")
def test_a_damaged_file_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings, texts = replace(QUIET, result_cache_dir=tmp_path), [f"text {number}" for number in range(20)]
    with serve_in_thread(settings) as server:
        computed, _ = embed(str(server.client.base_url), texts)
    path = file_in(tmp_path)
    data = bytearray(path.read_bytes())
    data[:50] = b"x" * 50
    path.write_bytes(data)
    with serve_in_thread(settings) as server:
        assert embed(str(server.client.base_url), texts) == (computed, 0)
        assert embed(str(server.client.base_url), texts) == (computed, 20)
        assert server.metric("vecmill_result_cache_drops_total", reason="file_damaged") == 1
    assert f"{path.name} is dropped" in caplog.text
    assert not path.exists()


@pytest.mark.linux
def test_several_processes_share_the_results_on_disk(tmp_path: Path) -> None:
    arguments = ["--engine", "fake", "--processes", "2", "--cores", "2"]
    arguments += ["--result-cache-dir", str(tmp_path / "results")]
    texts = [f"text {number}" for number in range(5)]
    with live_server(tmp_path, arguments=arguments) as server:
        first, _ = embed(server.url, texts)
        # Each connection may reach either process. Once the results are on disk, both have them.
        hits = 0
        for _ in range(1_000):
            found, hits = embed(server.url, texts)
            assert found == first
            if "disk" in httpx.get(f"{server.url}/metrics").text and hits == 5:
                break
        assert hits == 5


def test_a_folder_that_cannot_be_used_does_not_stop_the_server(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps("not a folder"))
    settings = replace(QUIET, result_cache_dir=tmp_path / "file" / "results")
    with serve_in_thread(settings) as server:
        for expected in (None, "1"):
            answer = server.client.post("/v1/embeddings", json={"input": "a"})
            assert (answer.status_code, answer.headers.get(HEADER)) == (200, expected)


def test_without_an_option_nothing_is_kept(plain: HttpServer) -> None:
    for _ in range(2):
        answer = plain.client.post("/v1/embeddings", json={"input": "a"})
        assert HEADER not in answer.headers
    assert "vecmill_result_cache_bytes" not in plain.client.get("/metrics").text
