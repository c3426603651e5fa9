"""Keys of a file open a running server while they are in the file; the metrics have a key of their own."""

import hashlib
import logging
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from support.forked_process import run_process
from support.http_server import QUIET, serve_in_thread, wait_until
from support.server import live_server
from vecmill_server.service import api_keys

OLD, NEW, SCRAPER = "the-old-secret-key", "the-new-secret-key", "the-secret-key-of-a-scraper"
BODY = {"input": "hello"}


def status(client: httpx.Client, key: str, path: str = "/models") -> int:
    return client.get(path, headers={"authorization": f"Bearer {key}"}).status_code


@pytest.mark.promise("keys-checked")
def test_keys_are_rotated_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(api_keys, "LOOK_S", 0.01)
    path = tmp_path / "keys"
    path.write_text(f"search {OLD}\n")
    with caplog.at_level(logging.DEBUG), serve_in_thread(replace(QUIET, api_key_file=path)) as server:
        told = [repr(server.service), repr(server.service.keys)]
        client = server.client
        assert (status(client, OLD), status(client, NEW)) == (200, 401)
        path.write_text(f"search {OLD}\nsearch {NEW}\n")
        wait_until(lambda: status(client, NEW) == 200)
        assert status(client, OLD) == 200
        path.write_text("search\n")
        wait_until(lambda: "keys stay" in caplog.text)
        assert status(client, OLD) == 200
        path.write_text(f"search {NEW}\n")
        wait_until(lambda: status(client, OLD) == 401)
        assert status(client, NEW) == 200
        told += [client.get("/metrics").text, caplog.text]
        told += [str(record.__dict__) for record in caplog.records]
    assert not [text for text in told if "secret-key" in text]
    assert 'search"' not in told[2]


def test_the_metrics_may_have_a_key_of_their_own(tmp_path: Path) -> None:
    settings = replace(QUIET, metrics_key=(SCRAPER,))
    assert SCRAPER not in repr(settings)
    with serve_in_thread(settings) as server:
        assert server.client.get("/metrics").status_code == 401
        assert (status(server.client, SCRAPER, "/metrics"), status(server.client, OLD, "/metrics")) == (
            200,
            401,
        )
        assert server.client.post("/embeddings", json=BODY).status_code == 200
        described = server.client.get("/openapi.json").json()["paths"]
        assert "security" in described["/metrics"]["get"]
        assert "security" not in described["/models"]["get"]
    with serve_in_thread(replace(settings, api_key=(OLD,))) as server:
        assert (status(server.client, OLD, "/metrics"), status(server.client, SCRAPER, "/metrics")) == (
            401,
            200,
        )
        assert (status(server.client, OLD), status(server.client, SCRAPER)) == (200, 401)
        assert server.client.get("/readyz").status_code == 200
        assert "--metrics-key" in server.client.get("/metrics").json()["error"]["message"]


@pytest.mark.promise("keys-checked")
def test_a_real_server_writes_no_secret_down(tmp_path: Path) -> None:
    digest = hashlib.sha256(NEW.encode()).hexdigest()
    (tmp_path / "keys").write_text(f"search {OLD}\ningest sha256:{digest}\n")
    arguments = ["--api-key-file", str(tmp_path / "keys"), "--log-level", "debug", "--metrics-key", SCRAPER]
    arguments += [
        "--engine",
        "fake",
        "--batch-dir",
        str(tmp_path / "batches"),
        "--api-key",
        "the-secret-key-of-the-option",
    ]
    with live_server(tmp_path, arguments=arguments) as server:
        told = list[httpx.Response]()
        keys = (OLD, NEW, SCRAPER, "the-secret-key-of-the-option", "a-wrong-secret-key", "secret-key" * 500)
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for key in keys:
                for headers in ({"authorization": f"Bearer {key}"}, {"api-key": key}):
                    paths = ("/metrics", "/v1/files", "/nothing")
                    told += [client.get(path, headers=headers) for path in paths]
                    told.append(client.post("/embeddings", json={"input": 7}, headers=headers))
                    told.append(client.post("/v1/files", content=b"{", headers=headers))
            answer = client.get("/livez", headers={"x-request-id": "an id with spaces"})
            assert " " not in answer.headers["x-request-id"]
        assert {answer.status_code for answer in told} >= {200, 400, 401, 404}
        # A broken file is logged too.
        (tmp_path / "keys").write_text(f"{OLD}\n")
        wait_until(lambda: "keys stay" in server.log.read_text())
    texts = [f"{answer.text} {answer.headers}" for answer in told] + [server.log.read_text()]
    assert len(server.log.read_text().splitlines()) > len(told)
    assert not [text for text in texts if "secret-key" in text or digest in text]


def test_a_key_file_that_cannot_be_used_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{OLD}\n")
    command = [sys.executable, "-m", "vecmill", "serve", "--api-key-file", str(tmp_path / "keys")]
    ended = run_process(command)
    assert ended.returncode == 2
    assert "Line 1 of" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert OLD not in ended.stderr
