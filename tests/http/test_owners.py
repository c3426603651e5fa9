"""The files and batches of a key are nobody else's, over HTTP and through rotations and restarts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from support.batches import create_batch, ended, lines_of, request_line, upload
from support.http_server import PATIENCE_S, QUIET, HttpServer, serve_in_thread, wait_until
from vecmill_server.base.settings import ServerSettings
from vecmill_server.batches import scheduler
from vecmill_server.batches.stored_bytes import FILE_BYTES

KEYS = "search key-1\nsearch key-2\ningest key-3\n"
FILE = {"file": ("in.jsonl", b"{}")}
UPLOAD = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
UPLOAD += b"content-length: %d\r\n"
PART = b'\r\n--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'


@contextmanager
def client_of(server: HttpServer, key: str) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=server.client.base_url, headers=headers, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    (tmp_path / "keys").write_text(KEYS)
    return replace(QUIET, batch_dir=tmp_path / "batches", api_key_file=tmp_path / "keys", api_key=("key-0",))


def ids(client: httpx.Client, path: str) -> list[str]:
    return [entry["id"] for entry in client.get(path).json()["data"]]


@pytest.mark.promise("owners-apart")
def test_a_key_sees_the_objects_of_its_name_only(settings: ServerSettings) -> None:
    with (
        serve_in_thread(settings) as server,
        client_of(server, "key-1") as mine,
        client_of(server, "key-2") as mine_too,
        client_of(server, "key-3") as others,
        client_of(server, "key-0") as unnamed,
    ):
        batch = ended(mine, create_batch(mine, [request_line("a", {"input": "a"})]))
        files = [batch["output_file_id"], batch["input_file_id"]]
        for client in (others, unnamed):
            assert ids(client, "/v1/files") == ids(client, "/v1/batches") == []
            answers = [
                client.get(f"/v1/batches/{batch['id']}"),
                client.post(f"/v1/batches/{batch['id']}/cancel"),
            ]
            answers += [client.get(f"/v1/files/{file_id}") for file_id in files]
            answers += [client.get(f"/v1/files/{file_id}/content") for file_id in files]
            answers += [client.delete(f"/v1/files/{file_id}") for file_id in files]
            body = {"input_file_id": files[1], "endpoint": "/v1/embeddings", "completion_window": "24h"}
            answers += [
                client.post("/v1/batches", json=body),
                client.get("/v1/files", params={"after": files[0]}),
            ]
            assert {answer.status_code for answer in answers} == {404}
            # As for an id that never was.
            missing = client.get("/v1/files/file-000000000000000000000000").json()["message"]
            assert missing.replace("file-000000000000000000000000", files[0]) == answers[2].json()["message"]
        assert ids(mine_too, "/v1/files") == files
        assert ids(mine_too, "/v1/batches") == [batch["id"]]
        assert len(lines_of(mine_too, files[0])) == 1
        assert mine_too.delete(f"/v1/files/{files[0]}").status_code == 200
        assert ids(mine, "/v1/files") == files[1:]


def test_all_files_can_be_deleted_page_by_page(settings: ServerSettings) -> None:
    with serve_in_thread(settings) as server, client_of(server, "key-1") as client:
        made = [upload(client, [str(number)]) for number in range(7)]
        deleted, page = list[str](), client.get("/v1/files", params={"limit": 2}).json()
        while page["data"]:
            for entry in page["data"]:
                assert client.delete(f"/v1/files/{entry['id']}").status_code == 200
                deleted.append(entry["id"])
            page = client.get("/v1/files", params={"limit": 2, "after": page["last_id"]}).json()
        assert deleted == made[::-1]


def test_names_outlive_keys(settings: ServerSettings) -> None:
    with serve_in_thread(settings) as server, client_of(server, "key-1") as client:
        file_id = upload(client, ["{}"])
    assert settings.api_key_file is not None
    settings.api_key_file.write_text("search key-9\n")
    with serve_in_thread(settings) as server, client_of(server, "key-9") as client:
        assert ids(client, "/v1/files") == [file_id]


def test_files_from_before_the_names_stay_with_the_keys_of_the_option(settings: ServerSettings) -> None:
    with serve_in_thread(replace(settings, api_key_file=None, api_key=())) as server:
        file_id = upload(server.client, ["{}"])
    with serve_in_thread(settings) as server:
        with client_of(server, "key-1") as client:
            assert ids(client, "/v1/files") == []
        with client_of(server, "key-0") as client:
            assert ids(client, "/v1/files") == [file_id]


@pytest.mark.promise("bounded-metrics")
def test_owners_are_not_labels(settings: ServerSettings) -> None:
    def series(client: httpx.Client) -> set[str]:
        return {line.split(" ")[0] for line in client.get("/metrics").text.splitlines()}

    with serve_in_thread(settings) as server:
        with client_of(server, "key-1") as client:
            upload(client, ["{}"])
        series(server.client)  # the first request for the metrics adds its own
        before = series(server.client)
        for key in ("key-2", "key-3", "key-0"):
            with client_of(server, key) as client:
                upload(client, ["{}"])
        assert series(server.client) == before
        assert not [name for name in before if "search" in name or "ingest" in name]


@pytest.mark.promise("owners-apart")
def test_one_key_cannot_fill_the_store(settings: ServerSettings) -> None:
    with (
        serve_in_thread(replace(settings, max_stored_bytes=3 * (FILE_BYTES + 3_000))) as server,
        client_of(server, "key-1") as mine,
        client_of(server, "key-3") as others,
    ):
        upload(mine, ["x" * 2_900])
        answer = mine.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a", b"x" * 200)})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "storage_limit_exceeded")
        assert f"{FILE_BYTES + 3_000} bytes" in answer.json()["message"]
        assert upload(others, ["x" * 2_900])


def test_uploads_at_once_do_not_pass_the_limit(tmp_path: Path) -> None:
    limit, size = 4_000_000, 1_500_000
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, max_stored_bytes=limit)) as server:
        statuses: list[int] = []

        def send() -> None:
            form = {"file": ("in.jsonl", b"x" * size)}
            with httpx.Client(base_url=server.client.base_url, timeout=PATIENCE_S) as client:
                statuses.append(client.post("/v1/files", data={"purpose": "batch"}, files=form).status_code)

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) <= {200, 413}
        kept = sum(path.stat().st_size for path in (tmp_path / "files").iterdir())
        assert kept == statuses.count(200) * size <= limit
        # What the others had reserved is free again.
        left = limit - kept - (statuses.count(200) + 1) * FILE_BYTES
        assert upload(server.client, ["x" * left])
        assert server.client.post("/v1/files", data={"purpose": "batch"}, files=FILE).status_code == 413


def test_an_upload_that_cannot_fit_is_refused_before_it_arrives(tmp_path: Path) -> None:
    settings = replace(QUIET, batch_dir=tmp_path, max_stored_bytes=10_000 + FILE_BYTES)
    with serve_in_thread(settings) as server, server.connect() as connection:
        connection.sendall(UPLOAD % 1_000_000 + b"expect: 100-continue\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_an_upload_that_breaks_off_gives_its_space_back(tmp_path: Path) -> None:
    size = 3_000_000
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, max_stored_bytes=4_000_000)) as server:
        for _ in range(3):
            with server.connect() as connection:
                connection.sendall(UPLOAD % (size + 500) + PART + b"x" * size)
        while True:
            form = {"file": ("in.jsonl", b"x" * size)}
            if server.client.post("/v1/files", data={"purpose": "batch"}, files=form).status_code == 200:
                break
        assert len(list((tmp_path / "files").iterdir())) == 1


def test_ended_batches_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "KEPT_BATCHES", 5)
    monkeypatch.setattr(scheduler, "LOOK_S", 0.05)
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path)) as server:
        made = [create_batch(server.client, ["{"]) for _ in range(8)]
        wait_until(lambda: ids(server.client, "/v1/batches") == made[:2:-1])


def test_uploads_count_in_the_buffers_of_the_server(tmp_path: Path) -> None:
    size = 1_000_000
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, max_buffered_bytes=2_000_000)) as server:
        form = {"file": ("in.jsonl", b"x" * size)}
        with server.connect() as slow:
            slow.sendall(UPLOAD % size + PART + b"x" * (size // 2))
            wait_until(lambda: server.metric("vecmill_buffered_bytes") >= size)
            refused = server.client.post("/v1/files", data={"purpose": "batch"}, files=form)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
            assert upload(server.client, ["small"])
        wait_until(lambda: server.metric("vecmill_buffered_bytes") == 0)
        assert server.client.post("/v1/files", data={"purpose": "batch"}, files=form).status_code == 200
