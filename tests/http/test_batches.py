"""Files and batches over HTTP: OpenAI's shapes, their limits, and what goes on beside them."""

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import numpy as np
import pytest

from support.batches import ENDED, create_batch, ended, lines_of, request_line, retrieve, rows_of, upload
from support.http_server import DIM, MODEL, QUIET, HttpServer, hanging_engine, serve_in_thread, wait_until
from vecmill.config import InputConfig, MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, FaultScript
from vecmill_server.app.routes.batches import PATHS
from vecmill_server.batches.folder import Folder
from vecmill_server.batches.objects import FileObject
from vecmill_server.batches.store import Store
from vecmill_server.batches.stored_bytes import FILE_BYTES

HOUR_S = 3600


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("batches")
    settings = replace(
        QUIET, batch_dir=folder, max_batch_lines=500, max_file_bytes=100_000, max_body_bytes=20_000
    )
    with serve_in_thread(settings, config=MillConfig(inputs=InputConfig(max_inputs=20))) as server:
        yield server


def embedded(client: httpx.Client, *texts: str) -> np.ndarray:
    answer = client.post("/v1/embeddings", json={"input": list(texts)}).json()
    return np.array([entry["embedding"] for entry in answer["data"]], np.float32)


# What comes back.


def test_a_batch_gives_the_rows_that_requests_would(client: httpx.Client) -> None:
    lines = [request_line(f"id {number}", {"input": f"text {number}"}) for number in range(300)]
    lines.append(
        request_line("several", {"input": ["text 1", "", "text 2"], "model": MODEL, "dimensions": 8})
    )
    batch_id = create_batch(client, lines, metadata={"who": "me"})
    batch = ended(client, batch_id)
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 301, "completed": 301, "failed": 0}
    assert "error_file_id" not in batch
    found = lines_of(client, batch["output_file_id"])
    assert [line["custom_id"] for line in found] == [*(f"id {n}" for n in range(300)), "several"]
    np.testing.assert_array_equal(rows_of(found[7]), embedded(client, "text 7"))
    assert rows_of(found[-1]).shape == (3, 8)
    tokens = sum(line["response"]["body"]["usage"]["total_tokens"] for line in found)
    assert batch["usage"]["total_tokens"] == tokens > 600


def test_a_line_may_ask_for_chunks(client: httpx.Client) -> None:
    asked = {"input": "one two three", "chunking": {"mode": "chunks", "tokens": 2}}
    many = {"input": "a " * 100, "chunking": {"mode": "chunks", "tokens": 2}}
    lines = [request_line("few", asked), request_line("many", many)]
    batch = ended(client, create_batch(client, lines))
    (found,) = lines_of(client, batch["output_file_id"])
    data = found["response"]["body"]["data"]
    assert [(one["index"], one["chunk"]["start"], one["chunk"]["end"]) for one in data] == [
        (0, 0, 8),
        (0, 8, 13),
    ]
    (refused,) = lines_of(client, batch["error_file_id"])
    assert (refused["custom_id"], refused["response"]["status_code"]) == ("many", 413)


@pytest.mark.promise("truncation-told")
def test_a_line_tells_which_of_its_inputs_were_cut(client: httpx.Client) -> None:
    lines = [
        request_line("one", {"input": ["a cat", "cat " * 300]}),
        request_line("none", {"input": "a cat"}),
        request_line("many pieces", {"input": "cat " * 4_000}),
    ]
    batch = ended(client, create_batch(client, lines))
    told = [line["response"]["body"].get("truncated") for line in lines_of(client, batch["output_file_id"])]
    assert told == [[{"index": 1, "tokens": 46}], None, [{"index": 0, "tokens": 4_002 - 256}]]


def test_a_batch_has_openais_shape(client: httpx.Client) -> None:
    batch_id = create_batch(client, [request_line("a", {"input": "a"})], metadata={"who": "me"})
    batch = ended(client, batch_id)
    times = {name: batch.pop(name) for name in list(batch) if name.endswith("_at")}
    assert times["created_at"] <= times["in_progress_at"] <= times["finalizing_at"] <= times["completed_at"]
    assert times["expires_at"] == times["created_at"] + 24 * HOUR_S
    assert set(times) == {"created_at", "expires_at", "in_progress_at", "finalizing_at", "completed_at"}
    assert batch.pop("input_file_id").startswith("file-")
    assert batch.pop("output_file_id").startswith("file-")
    assert batch == {
        "id": batch_id,
        "object": "batch",
        "endpoint": "/v1/embeddings",
        "completion_window": "24h",
        "status": "completed",
        "request_counts": {"total": 1, "completed": 1, "failed": 0},
        "metadata": {"who": "me"},
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 3,
        },
    }


def test_errors_of_lines_go_to_the_error_file_as_http_would_answer_them(client: httpx.Client) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "good": {"input": "a"},
        "nothing": {"input": []},
        "many": {"input": ["a"] * 21},
        "unknown": {"input": "a", "model": "gpt-none"},
        "wide": {"input": "a", "dimensions": 4_000},
    }
    batch = ended(client, create_batch(client, [request_line(name, body) for name, body in bodies.items()]))
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 5, "completed": 1, "failed": 4}
    assert [line["custom_id"] for line in lines_of(client, batch["output_file_id"])] == ["good"]
    errors = {line["custom_id"]: line for line in lines_of(client, batch["error_file_id"])}
    assert set(errors) == set(bodies) - {"good"}
    for name, line in errors.items():
        answer = client.post("/v1/embeddings", json=bodies[name])
        assert line["error"] is None
        assert line["id"].startswith("batch_req_")
        assert line["response"]["status_code"] == answer.status_code
        assert line["response"]["body"] == answer.json()


def test_a_file_with_a_mistake_fails_as_a_whole_and_says_where(client: httpx.Client) -> None:
    batch = ended(client, create_batch(client, [request_line("a", {"input": "a"}), "{no json"]))
    assert batch["status"] == "failed"
    assert batch.keys().isdisjoint(("output_file_id", "error_file_id", "completed_at"))
    assert batch["failed_at"] >= batch["created_at"]
    assert batch["errors"] == {
        "object": "list",
        "data": [
            {
                "code": "invalid_json_line",
                "message": "This line is not parseable as a JSON object.",
                "param": None,
                "line": 2,
            }
        ],
    }


def test_more_lines_than_are_taken_fail(client: httpx.Client) -> None:
    lines = [request_line(str(number), {"input": "a"}) for number in range(501)]
    batch = ended(client, create_batch(client, lines))
    assert batch["errors"]["data"][0]["code"] == "too_many_tasks"


# Files.


def test_a_file_has_openais_shape_and_comes_back_as_it_was(client: httpx.Client) -> None:
    content = b"anything \xff\r\n at all"
    files = {"file": ("dir/n\u00e4me.jsonl", content)}
    answer = client.post("/v1/files", data={"purpose": "batch"}, files=files)
    record = answer.json()
    assert record.pop("created_at") > 1.6e9
    file_id = record.pop("id")
    assert record == {
        "object": "file",
        "bytes": len(content),
        "filename": "dir_n\u00e4me.jsonl",
        "purpose": "batch",
        "status": "processed",
    }
    assert client.get(f"/v1/files/{file_id}").json()["filename"] == "dir_n\u00e4me.jsonl"
    found = client.get(f"/files/{file_id}/content")
    assert (found.content, found.headers["content-type"]) == (content, "application/octet-stream")
    assert "attachment" in found.headers["content-disposition"]
    assert client.delete(f"/v1/files/{file_id}").json() == {"id": file_id, "object": "file", "deleted": True}
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        gone = client.request(method, f"/v1/files/{file_id}{path}")
        assert gone.status_code == 404
        assert gone.json()["error"]["type"] == "invalid_request_error"


def test_lists_come_in_pages(client: httpx.Client) -> None:
    made = [create_batch(client, [request_line("a", {"input": "a"})]) for _ in range(3)]
    first = client.get("/v1/batches", params={"limit": 2}).json()
    assert [batch["id"] for batch in first["data"]] == made[:0:-1]
    assert (first["first_id"], first["last_id"], first["has_more"]) == (made[2], made[1], True)
    second = client.get("/batches", params={"limit": 1, "after": made[1]}).json()
    assert [batch["id"] for batch in second["data"]] == made[:1]
    for batch_id in made:
        ended(client, batch_id)
    outputs = client.get("/v1/files", params={"purpose": "batch_output", "order": "asc"}).json()["data"]
    assert {record["purpose"] for record in outputs} == {"batch_output"}
    times = [record["created_at"] for record in outputs]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/batches?limit=0", "limit"),
        ("/v1/batches?limit=101", "limit"),
        ("/v1/files?limit=x", "limit"),
        ("/v1/files?order=up", "order"),
    ],
)
def test_a_page_that_cannot_be_is_refused(client: httpx.Client, path: str, field: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


# What is refused.


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"endpoint": "/v1/chat/completions"}, "endpoint"),
        ({"endpoint": None}, "endpoint"),
        ({"input_file_id": ""}, "input_file_id"),
        ({"input_file_id": 7}, "input_file_id"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "999h"}, "completion_window"),
        ({"metadata": "mine"}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"output_expires_after": 7}, "output_expires_after"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}}, "output_expires_after.seconds"),
        ({"output_expires_after": {"seconds": HOUR_S}}, "output_expires_after.anchor"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(
    client: httpx.Client, changes: dict[str, object], field: str
) -> None:
    body = {"input_file_id": "file-x", "endpoint": "/v1/embeddings", "completion_window": "24h", **changes}
    answer = client.post("/v1/batches", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_the_lines_of_a_batch_are_not_taken_without_a_file(client: httpx.Client) -> None:
    answer = client.post("/v1/batches", json={"endpoint": "/v1/embeddings", "requests": ["a" * 1000] * 300})
    assert (answer.status_code, "input_file_id" in answer.json()["message"]) == (413, True)


def test_a_batch_of_an_unknown_file_is_404(client: httpx.Client) -> None:
    answer = client.post("/v1/batches", json={"input_file_id": "file-x", "endpoint": "/v1/embeddings"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "input_file_id")
    assert client.get("/v1/batches/batch_x").status_code == 404
    assert client.post("/v1/batches/batch_x/cancel").status_code == 404


def test_what_has_ended_is_not_cancelled_and_clients_do_not_try_again(client: httpx.Client) -> None:
    batch_id = create_batch(client, [request_line("a", {"input": "a"})])
    ended(client, batch_id)
    answer = client.post(f"/v1/batches/{batch_id}/cancel")
    assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")


FILE = {"file": ("in.jsonl", b"x")}
FILE_PART = b'content-disposition: form-data; name="file"; filename="a"'


@pytest.mark.parametrize(
    ("data", "files", "field"),
    [
        ({}, FILE, "purpose"),
        ({"purpose": "fine-tune"}, FILE, "purpose"),
        ({"purpose": "batch"}, {"attachment": ("in.jsonl", b"x")}, "file"),
        ({"purpose": "batch", "file": "text"}, {"other": ("x", b"x")}, "file"),
        ({"purpose": "batch"}, [("file", ("a", b"x")), ("file", ("b", b"x"))], "file"),
        ({"purpose": "batch", "a": "x" * 5_000}, FILE, None),
        ({"purpose": "batch", **{str(number): "" for number in range(20)}}, FILE, None),
        (
            {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "60"},
            FILE,
            "expires_after.seconds",
        ),
        ({"purpose": "batch", "expires_after[seconds]": "3600"}, FILE, "expires_after.anchor"),
    ],
)
def test_a_form_that_is_no_upload_is_refused_and_leaves_nothing(
    server: HttpServer, client: httpx.Client, data: dict[str, str], files: object, field: str | None
) -> None:
    assert server.service.settings.batch_dir is not None
    folder = server.service.settings.batch_dir / "files"
    before = set(folder.iterdir())
    answer = client.post("/v1/files", data=data, files=files)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert set(folder.iterdir()) == before
    assert server.is_well()


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"no boundary at all"),
        ("multipart/form-data; boundary=b", b""),
        (
            "multipart/form-data; boundary=b",
            b"--b\r\ncontent-disposition: form-data; name=file; filename=a\r\n\r\nx",
        ),
        ("multipart/form-data; boundary=" + "b" * 1_000, b"x"),
    ],
)
def test_a_body_that_is_no_form_is_refused(server: HttpServer, content_type: str, body: bytes) -> None:
    answer = server.client.post("/v1/files", content=body, headers={"content-type": content_type})
    assert answer.status_code == 400
    assert server.is_well()


def test_a_time_to_live_is_kept(client: httpx.Client) -> None:
    data = {
        "purpose": "batch",
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": str(HOUR_S),
    }
    record = client.post("/v1/files", data=data, files=FILE).json()
    assert record["expires_at"] == record["created_at"] + HOUR_S


@pytest.mark.promise("bounded-input")
def test_files_may_be_larger_than_bodies_but_not_without_end(server: HttpServer) -> None:
    assert server.service.settings.max_body_bytes < 90_000
    fits = {"file": ("in.jsonl", b"x" * 90_000)}
    assert server.client.post("/v1/files", data={"purpose": "batch"}, files=fits).status_code == 200
    large = {"file": ("in.jsonl", b"x" * 400_000)}
    answer = server.client.post("/v1/files", data={"purpose": "batch"}, files=large)
    assert answer.status_code == 413
    assert "--max-file-bytes" in answer.json()["message"]
    assert server.is_well()


def test_a_client_that_leaves_in_the_middle_of_an_upload_leaves_nothing(server: HttpServer) -> None:
    assert server.service.settings.batch_dir is not None
    folder = server.service.settings.batch_dir / "files"
    before = set(folder.iterdir())
    head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n"
    kind = b"content-type: multipart/form-data; boundary=b\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head + kind + b"--b\r\n" + FILE_PART + b"\r\n\r\nhalf of it")
        wait_until(lambda: set(folder.iterdir()) != before)
    wait_until(lambda: set(folder.iterdir()) == before)
    assert server.is_well()


@pytest.mark.promise("full-disk")
@pytest.mark.parametrize("size", [10, 90_000])
def test_a_full_disk_is_told_and_nothing_is_left_on_it(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    assert server.service.settings.batch_dir is not None
    folder = server.service.settings.batch_dir / "files"

    def create(_: Folder, file_id: str) -> BinaryIO:
        (folder / file_id).touch()
        return Path("/dev/full").open("wb")

    before = set(folder.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "create", create)
        files = {"file": ("in.jsonl", b"x" * size)}
        answer = server.client.post("/v1/files", data={"purpose": "batch"}, files=files)
    assert (answer.status_code, "no room" in answer.json()["message"]) == (413, True)
    assert set(folder.iterdir()) == before
    assert server.is_well()


def test_an_upload_that_cannot_be_noted_leaves_nothing(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.service.settings.batch_dir is not None
    folder = server.service.settings.batch_dir / "files"

    def refuse(_: Store, record: FileObject) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    before = set(folder.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(Store, "add_file", refuse)
        answer = server.client.post("/v1/files", data={"purpose": "batch"}, files=FILE)
    assert (answer.status_code, "no room" in answer.json()["message"]) == (413, True)
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize(("path", "operations"), PATHS.items())
def test_every_route_is_described_with_what_it_answers(
    client: httpx.Client, path: str, operations: dict[str, Any]
) -> None:
    answer = client.request("OPTIONS", path.format(id="x"))
    assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == {name.upper() for name in operations}
    for method, operation in operations.items():
        found = client.request(method, path.format(id="x"))
        assert str(found.status_code) in operation["responses"]


@pytest.mark.parametrize(
    ("wanted", "status"), [("bytes=1-2", 206), ("bytes=99999-", 416), ("bytes=2-1", 400)]
)
def test_ranges_of_a_file_are_answered_as_described(client: httpx.Client, wanted: str, status: int) -> None:
    file_id = upload(client, ["0123456789"])
    answer = client.get(f"/v1/files/{file_id}/content", headers={"range": wanted})
    operation = PATHS["/v1/files/{id}/content"]["get"]
    described = operation["responses"][str(answer.status_code)]["content"]
    assert answer.status_code == status
    assert answer.headers["content-type"].partition(";")[0] in described


# What goes on beside.


def test_without_a_folder_the_routes_say_how_to_turn_them_on() -> None:
    with serve_in_thread() as server:
        for method, path in (("GET", "/v1/files"), ("POST", "/v1/files"), ("POST", "/v1/batches")):
            answer = server.client.request(method, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "batches_off")
            assert "--batch-dir" in answer.json()["message"]


def test_keys_are_asked_for(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, api_key=("secret",))) as server:
        for path in ("/v1/files", "/batches"):
            assert server.client.get(path).status_code == 401
            answer = server.client.get(path, headers={"authorization": "Bearer secret"})
            assert answer.status_code == 200


def test_what_a_batch_did_is_kept_when_it_is_cancelled(tmp_path: Path) -> None:
    engine = hanging_engine(*range(8))
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path), engine=engine) as server:
        lines = [request_line("bad", {}), *(request_line(str(n), {"input": f"t {n}"}) for n in range(50))]
        batch_id = create_batch(server.client, lines)
        wait_until(lambda: retrieve(server.client, batch_id)["request_counts"]["failed"] == 1)
        answer = server.client.post(f"/v1/batches/{batch_id}/cancel").json()
        assert (answer["status"], "cancelled_at" in answer) == ("cancelling", False)
        batch = ended(server.client, batch_id)
        assert batch["status"] == "cancelled"
        assert batch["request_counts"] == {"total": 51, "completed": 0, "failed": 51}
        first, *others = lines_of(server.client, batch["error_file_id"])
        assert (first["custom_id"], first["response"]["status_code"]) == ("bad", 400)
        assert [line["custom_id"] for line in others] == [str(n) for n in range(50)]
        assert {line["error"]["code"] for line in others} == {"batch_cancelled"}
        assert {line["response"] for line in others} == {None}
        assert server.metric("vecmill_batch_api_lines_total", outcome="failed") == 1
        assert server.metric("vecmill_batch_api_lines_total", outcome="dropped") == 50


@pytest.mark.promise("no-starvation")
@pytest.mark.parametrize("count", [500, pytest.param(3_000, marks=pytest.mark.full)])
def test_small_requests_are_answered_while_a_batch_runs(tmp_path: Path, count: int) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path)) as server:
        lines = [request_line(str(n), {"input": f"text {n}"}) for n in range(count)]
        batch_id = create_batch(server.client, lines)
        while retrieve(server.client, batch_id)["status"] not in ENDED:
            assert server.is_well()
        assert retrieve(server.client, batch_id)["request_counts"]["completed"] == count
        assert server.metric("vecmill_batch_api_lines_total", outcome="completed") == count
        assert server.metric("vecmill_batch_api_batches_total", status="completed") == 1


def test_a_full_queue_delays_lines_and_fails_none(tmp_path: Path) -> None:
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=2))
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path), config=config) as server:
        lines = [request_line(str(n), {"input": f"text {n}"}) for n in range(40)]
        batch = ended(server.client, create_batch(server.client, lines))
        assert batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
        rejected = server.metric("vecmill_rejections_total", model=MODEL, reason="queue_full")
        assert rejected > 0


@pytest.mark.promise("batches-survive")
def test_a_stop_leaves_a_batch_to_the_next_start(tmp_path: Path) -> None:
    settings = replace(QUIET, batch_dir=tmp_path)
    lines = [request_line(str(n), {"input": f"text {n}"}) for n in range(30)]
    with serve_in_thread(settings, engine=hanging_engine(*range(8)), config=MillConfig(cores=1)) as server:
        batch_id = create_batch(server.client, lines)
        wait_until(lambda: retrieve(server.client, batch_id)["status"] == "in_progress")
    with serve_in_thread(settings) as server:
        batch = ended(server.client, batch_id)
        found = lines_of(server.client, batch["output_file_id"])
        assert [line["custom_id"] for line in found] == [str(n) for n in range(30)]


def test_an_engine_that_fails_on_a_text_costs_its_line_alone(tmp_path: Path) -> None:
    engine = FakeEngine(dim=DIM, faults=FaultScript(poison=frozenset({7592})))  # hello
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path), engine=engine) as server:
        lines = [request_line(text, {"input": text}) for text in ("good", "hello", "fine")]
        batch = ended(server.client, create_batch(server.client, lines))
        assert batch["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
        (line,) = lines_of(server.client, batch["error_file_id"])
        assert (line["custom_id"], line["response"]["status_code"]) == ("hello", 500)


@pytest.mark.promise("bounded-input")
def test_the_most_that_is_stored_is_bounded(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, max_stored_bytes=2_000 + FILE_BYTES)) as server:
        first = upload(server.client, ["x" * 2_000])
        answer = server.client.post("/v1/files", data={"purpose": "batch"}, files=FILE)
        assert (answer.status_code, "--max-stored-bytes" in answer.json()["message"]) == (413, True)
        server.client.delete(f"/v1/files/{first}")
        assert upload(server.client, ["x"])


@pytest.mark.promise("bounded-input")
def test_empty_files_take_space_too(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, max_stored_bytes=3 * FILE_BYTES)) as server:
        made = [upload(server.client, []) for _ in range(3)]
        empty = {"file": ("in.jsonl", b"")}
        answer = server.client.post("/v1/files", data={"purpose": "batch"}, files=empty)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "storage_limit_exceeded")
        assert f"{FILE_BYTES} bytes more" in answer.json()["message"]
        server.client.delete(f"/v1/files/{made[0]}")
        assert upload(server.client, [])


def upload_request(content: bytes) -> bytes:
    body = b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    body += b"--b\r\n" + FILE_PART + b"\r\n\r\n" + content + b"\r\n--b--\r\n"
    head = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n" % len(body)
    return head + b"content-type: multipart/form-data; boundary=b\r\n\r\n" + body


def test_an_upload_may_take_longer_than_other_bodies(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, body_timeout_s=0.1)) as server:
        request = upload_request(b"slow")
        with server.connect() as connection:
            connection.sendall(request[:-10])
            time.sleep(0.4)  # the server's own time, not ours
            connection.sendall(request[-10:])
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_but_not_for_ever(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, upload_timeout_s=0.1)) as server:
        with server.connect() as connection:
            connection.sendall(upload_request(b"slow")[:-10])
            assert connection.recv(65_536).startswith(b"HTTP/1.1 408 ")
        assert list((tmp_path / "files").iterdir()) == []
        assert server.is_well()
