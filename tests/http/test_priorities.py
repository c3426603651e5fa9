"""A request says its priority in a header, its path or its body, and a key can make its requests bulk."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.http_server import QUIET, HttpServer, serve_in_thread
from vecmill.mill import Mill
from vecmill.requests import Caller, Priority, Request

INTERACTIVE, BULK = Priority.INTERACTIVE, Priority.BULK
KEYS = "search one\ningest two bulk\nchat three interactive\n"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Priority | None]:
    """The priorities of the requests that models get."""
    found: list[Priority | None] = []
    answer = Mill.answer

    async def note(mill: Mill, request: Request[Any], caller: Caller) -> Any:
        found.append(caller.priority)
        return await answer(mill, request, caller)

    monkeypatch.setattr(Mill, "answer", note)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEYS, "utf-8")
    with serve_in_thread(replace(QUIET, api_key_file=keys)) as server:
        yield server


def embed(server: HttpServer, path: str, key: str, said: str | None = None, **fields: object) -> Any:
    headers = {"authorization": f"Bearer {key}"} | ({"x-priority": said} if said else {})
    return server.client.post(path, json={"input": "a", **fields}, headers=headers)


@pytest.mark.promise("interactive-first")
@pytest.mark.parametrize(
    ("path", "key", "header", "field", "expected"),
    [
        ("/v1/embeddings", "one", None, None, None),  # the size decides
        ("/v1/embeddings", "one", "bulk", None, BULK),
        ("/v1/embeddings", "one", "Interactive", None, INTERACTIVE),
        ("/bulk/v1/embeddings", "one", None, None, BULK),
        ("/interactive/v1/embeddings", "one", None, None, INTERACTIVE),
        ("/bulk//v1/v1/embeddings/", "one", None, None, BULK),
        ("/v1/embeddings", "one", None, "BULK", BULK),
        ("/v1/embeddings", "one", None, 0, None),
        ("/v1/embeddings", "one", None, 7, BULK),
        ("/v1/embeddings", "one", None, -1, INTERACTIVE),
        # The header comes before the path, and the path before the body.
        ("/bulk/v1/embeddings", "one", "interactive", "bulk", INTERACTIVE),
        ("/bulk/v1/embeddings", "one", None, "interactive", BULK),
        # A key of bulk work makes every request bulk.
        ("/v1/embeddings", "two", None, None, BULK),
        ("/interactive/v1/embeddings", "two", "interactive", "interactive", BULK),
        ("/v1/embeddings", "three", None, None, INTERACTIVE),
        ("/bulk/v1/embeddings", "three", None, None, BULK),
    ],
)
def test_the_priority_of_a_request(
    server: HttpServer,
    seen: list[Priority | None],
    path: str,
    key: str,
    header: str | None,
    field: str | int | None,
    expected: Priority | None,
) -> None:
    fields = {} if field is None else {"priority": field}
    answer = embed(server, path, key, header, **fields)
    assert answer.status_code == 200
    assert "x-unknown-fields" not in answer.headers
    assert seen == [expected]


def test_a_number_of_cohere_is_read_too(server: HttpServer, seen: list[Priority | None]) -> None:
    body = {"texts": ["a"], "input_type": "search_query", "embedding_types": ["float"], "priority": 999}
    answer = server.client.post("/v2/embed", json=body, headers={"authorization": "Bearer one"})
    assert (answer.status_code, seen) == (200, [BULK])


def test_a_wrong_priority_names_its_place(server: HttpServer) -> None:
    answer = embed(server, "/v1/embeddings", "one", "urgent")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-priority")
    for wrong in ("urgent", 1.5, True, ["bulk"]):
        answer = server.client.post(
            "/v1/embeddings",
            json={"input": "a", "priority": wrong},
            headers={"authorization": "Bearer one"},
        )
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "priority")


def test_every_route_is_below_a_priority(server: HttpServer) -> None:
    headers = {"authorization": "Bearer one"}
    assert server.client.get("/bulk/v1/models", headers=headers).status_code == 200
    assert server.client.get("/bulk/livez").status_code == 200
    assert server.client.get("/bulk/v1/models").status_code == 401
    for path in ("/bulk", "/urgent/v1/models", "/bulk/interactive/v1/models", "/background/v1/models"):
        assert server.client.get(path, headers=headers).status_code == 404, path
