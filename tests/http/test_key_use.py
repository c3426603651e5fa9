"""The metrics tell operators how many texts and tokens each owner of a key has used."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.batches import create_batch, ended, request_line
from support.http_server import DIM, MODEL, QUIET, HttpServer, serve_in_thread, wait_until
from vecmill.engines.fake import FakeEngine, FaultScript
from vecmill_server.base.settings import ServerSettings, TokenIds

TEXTS, TOKENS = "vecmill_key_texts_total", "vecmill_key_tokens_total"
POISON = 5_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpServer]:
    (tmp_path / "keys").write_text("search key-1\nsearch key-2\ningest key-3\n")
    settings = ServerSettings(
        lame_duck_s=0,
        access_log=False,
        batch_dir=tmp_path / "batches",
        api_key=("key-0",),
        api_key_file=tmp_path / "keys",
        token_ids=TokenIds.NATIVE,
    )
    engine = FakeEngine(dim=DIM, faults=FaultScript(poison=frozenset({POISON})))
    with serve_in_thread(settings, engine=engine) as server:
        yield server


def post(server: HttpServer, key: str, path: str, **body: Any) -> Any:
    answer = server.client.post(path, json=body, headers={"authorization": f"Bearer {key}"})
    return answer.json() if answer.is_success else answer.status_code


def used(server: HttpServer, key: str) -> tuple[float, float]:
    """The texts and tokens of the owner of a key."""
    return server.metric(TEXTS, key=key, model=MODEL), server.metric(TOKENS, key=key, model=MODEL)


def test_the_texts_and_tokens_of_each_owner_are_those_of_its_answers(server: HttpServer) -> None:
    answers = [
        post(server, key, "/v1/embeddings", input=texts)
        for key, texts in (("key-1", ["a", "b c"]), ("key-2", ["d e f"]), ("key-3", ["g"]), ("key-0", ["h"]))
    ]
    tokens = [answer["usage"]["total_tokens"] for answer in answers]
    assert used(server, "search") == (3, tokens[0] + tokens[1])
    assert used(server, "ingest") == (1, tokens[2])
    assert used(server, "") == (1, tokens[3])  # keys of --api-key have no name


def test_identical_texts_count_in_full(server: HttpServer) -> None:
    answer = post(server, "key-1", "/v1/embeddings", input=["the same", "the same"])
    assert used(server, "search") == (2, answer["usage"]["total_tokens"])
    assert server.metric("vecmill_texts_joined_total", model=MODEL) == 1


def test_refused_and_failed_requests_and_tokenising_do_not_count(server: HttpServer) -> None:
    assert post(server, "key-1", "/v1/embeddings", input=[]) == 400
    assert post(server, "key-1", "/v1/embeddings", input=[[POISON]]) == 500
    assert post(server, "wrong", "/v1/embeddings", input="a") == 401
    assert post(server, "key-1", "/tokenize", inputs="a text")
    assert TEXTS + "{" not in server.client.get("/metrics").text


def test_lines_of_batches_count_for_the_owner_of_the_batch(server: HttpServer) -> None:
    server.client.headers["authorization"] = "Bearer key-3"
    lines = [
        request_line("good", {"input": ["a", "b c"]}),
        request_line("bad", {"input": [[POISON]]}),
        request_line("also good", {"input": "d"}),
    ]
    batch = ended(server.client, create_batch(server.client, lines))
    assert batch["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    wait_until(lambda: used(server, "ingest") == (3, batch["usage"]["total_tokens"]))


def test_without_keys_there_is_no_series_of_a_key() -> None:
    with serve_in_thread(QUIET) as server:
        assert server.is_well()
        assert "vecmill_key" not in server.client.get("/metrics").text


@pytest.mark.promise("bounded-metrics")
def test_the_metrics_have_names_of_owners_and_no_keys(server: HttpServer) -> None:
    for key in ("key-0", "key-1", "key-2", "key-3"):
        post(server, key, "/v1/embeddings", input="a")
    page = server.client.get("/metrics").text
    assert page.count(TEXTS + "{") == 3
    assert "key-" not in page
