"""The requests of `vecmill bench`, its test requests, and what it keeps if a load fails."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from click.testing import CliRunner, Result

from server.scripted_http import response, scripted_server
from support.http_server import serve_in_thread
from vecmill.errors import InvalidConfig, ServerFailed
from vecmill_server.bench.command import bench
from vecmill_server.bench.generator import Orders
from vecmill_server.bench.load_results import BenchLoad, LoadResult, summarise_latencies
from vecmill_server.bench.request_sets import ServerApi, make_bodies, read_texts
from vecmill_server.bench.run import estimate_tokens
from vecmill_server.bench.target import CheckedResponse, MeasuredServer, find_model, wait_until_idle

MODELS = response(json.dumps({"data": [{"id": "one"}]}).encode())
# What happens under loads with these numbers of clients.
FAILURES = {13: ServerFailed("The load failed."), 14: KeyboardInterrupt()}
TIMES_S = summarise_latencies([0.01] * 100)


def embeddings(embedding: Any = "AAAA", count: int = 1, tokens: int = 7) -> bytes:
    """A response of OpenAI's API."""
    data = [{"embedding": embedding}] * count
    return response(json.dumps({"data": data, "usage": {"prompt_tokens": tokens}}).encode())


def run(url: str, *arguments: str, folder: Path | None = None) -> Result:
    output = ("-o", str(folder)) if folder else ()
    return CliRunner().invoke(bench, ["--url", url, "--texts", "short", *arguments, *output])


def run_with(answer: Callable[[], bytes], *arguments: str, folder: Path | None = None) -> Result:
    """Run the command on a server that answers all requests except that for models with `answer`."""

    async def respond(head: bytes, _body: bytes) -> bytes:
        return MODELS if head.startswith(b"GET") else answer()

    with scripted_server(respond) as server:
        return run(server.url, *arguments, folder=folder)


@pytest.fixture
def without_load(monkeypatch: pytest.MonkeyPatch) -> list[Orders]:
    """Replace the generator by a result; give the orders that it gets."""
    given: list[Orders] = []

    def run_generator(orders: Orders, load: BenchLoad) -> LoadResult:
        given.append(orders)
        if load.clients in FAILURES:
            raise FAILURES[load.clients]
        return LoadResult(load, 1.0, {200: 100}, 0.1, TIMES_S)

    monkeypatch.setattr("vecmill_server.bench.run.run_generator", run_generator)
    return given


# ------------------------------------------------------------------- texts and bodies


@pytest.mark.parametrize("name", ["mixed", "file"])
def test_the_first_texts_are_as_long_as_all_texts(name: str, tmp_path: Path) -> None:
    file = tmp_path / "texts"
    chance = random.Random(3)
    lines = ["word " * round(chance.lognormvariate(3, 1)) + str(number) for number in range(2_000)]
    file.write_text("\n".join(lines), "utf-8")
    texts = read_texts(name if name == "mixed" else str(file), 2_000, seed=1)
    whole = mean(map(len, texts))
    for count in (48, 160, 480):
        assert mean(map(len, texts[:count])) == pytest.approx(whole, rel=0.15)
    assert texts != sorted(texts, key=len)
    if name == "file":
        assert sorted(texts) == sorted(lines)


def test_a_file_has_a_text_on_each_line_and_no_json(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_text("one\u2028line\x0btoo\nother\n", "utf-8")
    assert sorted(read_texts(str(file), 2, seed=1)) == ["one\u2028line\x0btoo", "other"]
    with pytest.raises(InvalidConfig, match="has JSON on each line"):
        read_texts(str(tmp_path / "texts.jsonl"), 1, seed=1)


def test_bodies_have_the_form_of_each_api(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_text("a\n\nb\nc\n", "utf-8")
    texts = read_texts(str(file), 6, seed=1)
    assert sorted(texts) == ["a", "a", "b", "b", "c", "c"]
    body = json.loads(make_bodies(ServerApi.EMBEDDINGS, "m", texts, 1, "float")[0])
    assert body == {"model": "m", "input": texts[0], "encoding_format": "float"}
    assert json.loads(make_bodies(ServerApi.RERANK, "m", texts, 3, "")[1])["documents"] == texts[3:]
    assert json.loads(make_bodies(ServerApi.TEI_RERANK, "m", texts, 3, "")[0])["texts"] == texts[:3]
    assert len(make_bodies(ServerApi.EMBEDDINGS, "m", texts, 4, "base64")) == 1
    with pytest.raises(InvalidConfig, match="neither a file"):
        read_texts(str(tmp_path / "none"), 1, seed=1)


@pytest.mark.parametrize(
    ("url", "api", "expected"),
    [
        ("http://h:1", ServerApi.EMBEDDINGS, "http://h:1/v1/embeddings"),
        ("http://h:1/", ServerApi.EMBEDDINGS, "http://h:1/embeddings"),
        ("https://h/openai/v1/", ServerApi.RERANK, "https://h/openai/v1/rerank"),
        ("http://h:1", ServerApi.TEI_RERANK, "http://h:1/rerank"),
    ],
)
def test_the_url_is_that_of_openai_clients(url: str, api: ServerApi, expected: str) -> None:
    assert MeasuredServer.of(url, api, None).url == expected


def test_a_wrong_url_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="not a URL of a server"):
        MeasuredServer.of("localhost:7997", ServerApi.EMBEDDINGS, None)


def test_a_port_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="http://h:abc is not a URL"):
        MeasuredServer.of("http://h:abc", ServerApi.EMBEDDINGS, None)


def test_a_query_and_a_percent_sign_are_part_of_the_request() -> None:
    target = MeasuredServer.of("http://h:1/a%20b/%d?version=1", ServerApi.EMBEDDINGS, None)
    assert target.url == "http://h:1/a%20b/%d/embeddings?version=1"
    assert target.models_url == "http://h:1/a%20b/%d/models?version=1"
    assert target.head.startswith("POST /a%20b/%d/embeddings?version=1 HTTP/1.1\r\nhost: h:1\r\n")


# ------------------------------------------------------------------- test requests


@pytest.mark.usefixtures("without_load")
def test_test_requests_do_not_go_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert run_with(embeddings).exit_code == 0


def test_a_refused_test_request_ends_the_command_with_the_words_of_the_server() -> None:
    async def respond(head: bytes, _body: bytes) -> bytes:
        if head.startswith(b"GET"):
            return MODELS
        return response(b'{"detail": "no such model"}', status="404 Not Found")

    with scripted_server(respond) as server:
        done = run(server.url)
    assert "answered 404" in str(done.exception)
    assert "no such model" in str(done.exception)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (response(b"<html>"), "did not answer JSON: <html>"),
        (response(b"[" * 100_000), "did not answer JSON: [["),
        (response(b'{"data": []}'), "answered 0 results for 1 texts"),
        (embeddings(count=2), "answered 2 results for 1 texts"),
        (response(b"", status="503 Service Unavailable"), "answered all test requests with 503"),
    ],
    ids=["page", "deep", "empty", "two", "busy"],
)
def test_a_response_without_the_results_ends_the_command(answer: bytes, words: str) -> None:
    done = run_with(lambda: answer)
    assert isinstance(done.exception, ServerFailed)
    assert words in str(done.exception)


@pytest.mark.usefixtures("without_load")
@pytest.mark.parametrize("embedding", ["AAAA", [0.5]], ids=["base64", "float"])
def test_the_encoding_that_the_server_chose_is_reported(
    embedding: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = request.node.callspec.id
    done = run_with(lambda: embeddings(embedding), folder=tmp_path)
    assert f"model one, embeddings as {name}\n" in done.output
    assert json.loads((tmp_path / "bench.json").read_text("utf-8"))["results"][0]["encoding"] == name


@pytest.mark.usefixtures("without_load")
@pytest.mark.parametrize("name", ["bytes", "bytes_only"])
def test_raw_bytes_of_a_server_are_measured(name: str, tmp_path: Path) -> None:
    with serve_in_thread() as server:
        url = f"http://127.0.0.1:{server.port}"
        done = run(url, "--encoding", name, "--batch", "4", folder=tmp_path)
    assert done.exit_code == 0, done.output
    assert f"embeddings as {name}\n" in done.output
    for found in json.loads((tmp_path / "bench.json").read_text("utf-8"))["results"]:
        assert found["encoding"] == name
        assert found["tokens_per_s"] > found["texts_per_s"]


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (b"", "", "0 bytes, which are not 3 embeddings"),
        (b"1234", "", "4 bytes, which are not 3 embeddings"),
        (b"123", "metadata: {\r\n", "`metadata` that is not JSON"),
        (b"123", f"metadata: {'[' * 5_000}\r\n", "`metadata` that is not JSON"),
    ],
)
def test_bytes_that_are_no_embeddings_end_the_command(body: bytes, headers: str, words: str) -> None:
    kind = "content-type: application/octet-stream\r\n"
    done = run_with(lambda: response(body, headers=kind + headers), "--batch", "3")
    assert isinstance(done.exception, ServerFailed)
    assert words in str(done.exception)


@pytest.mark.usefixtures("without_load")
def test_some_busy_answers_do_not_end_the_command() -> None:
    sent = 0

    def answer() -> bytes:
        nonlocal sent
        sent += 1
        return response(b"", status="429 Too Many Requests") if sent < 5 else embeddings()

    assert run_with(answer).exit_code == 0
    assert sent > 5


@pytest.mark.usefixtures("without_load")
@pytest.mark.parametrize(
    ("api", "body"), [("rerank", b'{"results": [{}, {}]}'), ("tei-rerank", b'[{"index": 0}, {"index": 1}]')]
)
def test_a_reranker_is_measured_and_tei_needs_no_model(api: str, body: bytes) -> None:
    async def respond(head: bytes, _body: bytes) -> bytes:
        if head.startswith(b"GET"):
            return response(b"", status="404 Not Found") if api == "tei-rerank" else MODELS
        return response(body)

    with scripted_server(respond) as server:
        assert run(server.url, "--api", api, "--batch", "2").exit_code == 0


def test_a_refused_list_of_models_is_reported_with_its_status() -> None:
    async def respond(_head: bytes, _body: bytes) -> bytes:
        return response(b"no such key", status="401 Unauthorized")

    refusal = "answered 401: no such key Put the API key into the environment variable VECMILL_BENCH_API_KEY"
    with scripted_server(respond) as server, pytest.raises(InvalidConfig, match=refusal):
        find_model(MeasuredServer.of(server.url, ServerApi.EMBEDDINGS, None))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error": {"message": "Not now."}}', "Not now. Name the model"),
        (b'{"error": "Not now"}', "Name the model"),
    ],
)
def test_of_a_refusal_in_json_only_the_message_is_told(body: bytes, told: str) -> None:
    async def respond(_head: bytes, _body: bytes) -> bytes:
        return response(body, status="503 Service Unavailable")

    with scripted_server(respond) as server, pytest.raises(InvalidConfig, match=told):
        find_model(MeasuredServer.of(server.url, ServerApi.EMBEDDINGS, None))


def test_the_server_is_idle_when_its_response_comes_as_soon_as_before() -> None:
    sent = 0

    async def respond(_head: bytes, _body: bytes) -> bytes:
        nonlocal sent
        sent += 1
        await asyncio.sleep(0.1 if sent < 3 else 0)
        return embeddings()

    with scripted_server(respond) as server:
        target = MeasuredServer.of(server.url, ServerApi.EMBEDDINGS, None)
        wait_until_idle(target, b"{}", 1, idle_s=0.02, timeout_s=20)
    assert sent >= 3


def test_tokens_are_estimated_by_the_lengths_of_all_requests() -> None:
    bodies = [b"x" * size for size in (100, 200, 600)]
    counted = {number: CheckedResponse(200, 0.1, tokens) for number, tokens in enumerate((20.0, 40.0))}
    sizes = {0: 80, 1: 180}
    assert estimate_tokens(counted, bodies, sizes, 1) == pytest.approx(60)
    # A server that counts characters.
    characters = {0: CheckedResponse(200, 0.1, 80.0), 1: CheckedResponse(200, 0.1, 180.0)}
    assert estimate_tokens(characters, bodies, sizes, 1) is None
    assert estimate_tokens(counted | {1: CheckedResponse(200, 0.1)}, bodies, sizes, 1) is None


# ------------------------------------------------------------------- failures


@pytest.mark.usefixtures("without_load")
@pytest.mark.parametrize("clients", FAILURES)
def test_a_load_that_fails_or_is_interrupted_leaves_the_results_before(clients: int, tmp_path: Path) -> None:
    done = run_with(embeddings, "--clients", "2", "--clients", str(clients), folder=tmp_path)
    assert done.exit_code != 0
    assert "2 clients" in done.output
    (found,) = json.loads((tmp_path / "bench.json").read_text("utf-8"))["results"]
    assert found["clients"] == 2


def test_a_directory_that_cannot_be_written_is_refused_before_the_loads(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_with(embeddings, folder=tmp_path / "file/folder")
    assert isinstance(done.exception, InvalidConfig)
    assert "cannot be written" in str(done.exception)
