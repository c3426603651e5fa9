"""Without a key, only probes, metrics and the description of the API are seen; and no key is ever told."""

import logging

import httpx
import pytest

from support.http_server import HttpServer, serve_in_thread, url
from vecmill_server.base.settings import ServerSettings

FIRST, SECOND = "first-secret-key", "zweiter-Schlüssel"
BODY = {"input": "hello"}


@pytest.fixture(scope="module")
def guarded():  # type: ignore[no-untyped-def]
    with serve_in_thread(ServerSettings(lame_duck_s=0, api_key=(FIRST, SECOND))) as server:
        yield server


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {FIRST}"},
        {"authorization": f"bearer {FIRST}"},
        {"authorization": f"Bearer   {FIRST}"},
        {"authorization": FIRST},
        {"api-key": FIRST},
        {"x-api-key": FIRST},
        {"api-key": "wrong", "x-api-key": FIRST},
        {"authorization": f"Bearer {SECOND}".encode()},
        {"authorization": "Bearer wrong", "api-key": FIRST},
    ],
)
def test_a_key_is_taken_in_every_form_that_clients_send(guarded: HttpServer, headers: dict[str, str]) -> None:
    assert guarded.client.post("/embeddings", json=BODY, headers=headers).status_code == 200


@pytest.mark.promise("keys-checked")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer None"},
        {"authorization": f"Bearer {FIRST}x"},
        {"authorization": f"Bearer {FIRST[:-1]}"},
        {"authorization": f"Basic {FIRST}"},
        {"authorization": "Bearer ключ".encode()},
        {"authorization": b"Bearer \xff\xfe"},
        {"api-key": "wrong"},
        {"x-api-key": "wrong"},
    ],
)
def test_anything_else_is_401(guarded: HttpServer, headers: dict[str, str]) -> None:
    answer = guarded.client.post("/embeddings", json=BODY, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert isinstance(answer.json()["detail"], str)


@pytest.mark.promise("keys-checked")
def test_only_probes_metrics_and_the_description_are_open(guarded: HttpServer) -> None:
    for path in ("/livez", "/readyz", "/health", "/metrics", "//health/", "/docs", "/openapi.json"):
        assert guarded.client.get(url(guarded.client, path)).status_code == 200
    for path in ("/models", "/v1/models", "/openapi.json/x", "/docsx", "/nothing", "/metrics/x"):
        assert guarded.client.get(path).status_code == 401


def test_without_keys_any_authorization_is_ignored(client: httpx.Client) -> None:
    for value in ("Bearer None", "Bearer EMPTY", "nonsense"):
        assert client.post("/embeddings", json=BODY, headers={"authorization": value}).status_code == 200


@pytest.mark.promise("keys-checked")
def test_no_key_is_ever_told(caplog: pytest.LogCaptureFixture) -> None:
    settings = ServerSettings(lame_duck_s=0, api_key=(FIRST,), access_log=True)
    told = [repr(settings), str(settings)]
    with caplog.at_level(logging.DEBUG), serve_in_thread(settings) as server:
        for key in (FIRST, "wrong-secret-key"):
            headers = {"authorization": f"Bearer {key}"}
            for path in ("/embeddings", "/models", "/openapi.json", "/metrics"):
                told.append(server.client.post(path, json={"input": 7}, headers=headers).text)
                told.append(server.client.get(path, headers=headers).text)
        told.append(repr(server.service))
    told += [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    assert len(caplog.records) >= 16
    assert not [text for text in told if "secret-key" in text]
