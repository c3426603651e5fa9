"""A batch that meets a limit or a full disk keeps whole lines, says what happened, and stops nobody else."""

import errno
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from batches.stores import keep_file
from support.batches import create_batch, ended, lines_of, request_line, retrieve, upload
from support.http_server import QUIET, serve_in_thread, wait_until
from vecmill_server.batches import scheduler
from vecmill_server.batches.folder import Folder, new_file_id
from vecmill_server.batches.objects import (
    BatchProgress,
    BatchStatus,
    LineError,
    NewBatch,
    StoreLimits,
)
from vecmill_server.batches.store import Store
from vecmill_server.batches.stored_bytes import BATCH_BYTES, FILE_BYTES

LINES = 60


def requests(count: int = LINES) -> list[str]:
    return [request_line(str(number), {"input": f"text {number}"}) for number in range(count)]


def input_size(lines: list[str]) -> int:
    return len("\n".join(lines))


def custom_ids(client: httpx.Client, file_id: str | None) -> list[str]:
    return [line["custom_id"] for line in lines_of(client, file_id)]


def free(client: httpx.Client) -> None:
    """Delete every file."""
    for record in client.get("/v1/files").json()["data"]:
        assert client.delete(f"/v1/files/{record['id']}").status_code == 200


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "files").iterdir())


@pytest.mark.promise("full-disk")
@pytest.mark.parametrize("room", [0, 100_000])
def test_a_batch_ends_at_the_limit_with_its_whole_lines(tmp_path: Path, room: int) -> None:
    lines = requests()
    limit = input_size(lines) + FILE_BYTES + BATCH_BYTES + room
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, max_stored_bytes=limit)) as server:
        client = server.client
        batch = ended(client, create_batch(client, lines))
        assert (batch["status"], batch["failed_at"] is None) == ("failed", False)
        (error,) = batch["errors"]["data"]
        done = custom_ids(client, batch.get("output_file_id"))
        assert (error["code"], error["line"]) == ("storage_limit_exceeded", len(done) + 1)
        assert "--max-stored-bytes" in error["message"]
        assert done == [str(number) for number in range(len(done))]
        assert 0 <= len(done) < LINES
        assert bool(done) is bool(room)
        assert batch["request_counts"] == {"total": LINES, "completed": len(done), "failed": 0}
        assert on_disk(tmp_path) <= limit
        assert server.is_well()
        dropped = server.metric("vecmill_batch_api_lines_total", outcome="dropped")
        assert dropped == LINES - len(done)
        # The other lines, when there is room again.
        rest = lines[len(done) :][:5]
        free(client)
        if room:
            batch = ended(client, create_batch(client, rest))
            assert batch["status"] == "completed"


def test_a_restart_before_the_end_ends_it_the_same(tmp_path: Path) -> None:
    limits = StoreLimits(10, 10**6)
    with closing(Store(tmp_path, limits)) as store:
        batch_id = begun(store, requests(3)).id
        store.advance(store.batch(batch_id), BatchProgress(1, 10, b'{"custom_id":"0"}\n', b"", 1, 0, 1))
        store.stop(batch_id, LineError("storage_limit_exceeded", "There is no room.", line=2))
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path)) as server:
        batch = ended(server.client, batch_id)
        assert (batch["status"], batch["errors"]["data"][0]["line"]) == ("failed", 2)
        assert custom_ids(server.client, batch["output_file_id"]) == ["0"]


@pytest.mark.parametrize("ending", [BatchStatus.CANCELLED, BatchStatus.EXPIRED])
def test_without_room_for_the_lines_that_were_not_run_it_still_ends(
    tmp_path: Path, ending: BatchStatus
) -> None:
    lines = requests()
    counted = input_size(lines) + FILE_BYTES + BATCH_BYTES
    with closing(Store(tmp_path, StoreLimits(10, 10**6))) as store:
        batch_id = begun(store, lines).id
        if ending is BatchStatus.EXPIRED:
            store.expire(batch_id)
        else:
            store.cancel("", batch_id, 0)
    settings = replace(QUIET, batch_dir=tmp_path, max_stored_bytes=counted + 1_000)
    with serve_in_thread(settings) as server:
        batch = ended(server.client, batch_id)
        assert batch["status"] == ending
        errors = custom_ids(server.client, batch["error_file_id"])
        assert errors == [str(number) for number in range(len(errors))]
        assert 0 < len(errors) < LINES
        assert batch["errors"]["data"][0]["code"] == "storage_limit_exceeded"


def begun(store: Store, lines: list[str]) -> Any:
    content = "\n".join(lines).encode()
    store.stored.take("", len(content) + FILE_BYTES)
    new = NewBatch(keep_file(store, content).id, "/v1/embeddings", "336h", 10**10)
    batch = store.add_batch("", new, (new_file_id(), new_file_id()), 0)
    return store.begin(batch.id, len(lines), 0)


def torn_write(folder: Folder, file_id: str, offset: int, data: bytes) -> None:
    """Write a part, as on a disk that becomes full."""
    with folder.path(file_id).open("r+b" if folder.path(file_id).exists() else "wb") as content:
        content.seek(offset)
        content.write(data[: len(data) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refused_commit(*_: object) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


@pytest.mark.promise("full-disk", "batches-survive")
@pytest.mark.parametrize(
    ("kind", "name", "fault"), [(Folder, "write_at", torn_write), (Store, "_count_lines", refused_commit)]
)
def test_a_full_disk_pauses_a_batch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type,
    name: str,
    fault: Any,
) -> None:
    monkeypatch.setattr(scheduler, "REST_S", 0.02)
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path)) as server:
        client = server.client
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, fault)
            batch_id = create_batch(client, requests())
            wait_until(lambda: caplog.text.count("the disk is full") >= 3)
            assert server.is_well()
            batch = retrieve(client, batch_id)
            assert (batch["status"], batch["request_counts"]["completed"]) == ("in_progress", 0)
        batch = ended(client, batch_id)
        assert batch["status"] == "completed"
        assert custom_ids(client, batch["output_file_id"]) == [str(number) for number in range(LINES)]
        counted = client.get(f"/v1/files/{batch['output_file_id']}").json()["bytes"]
        assert server.service.batches is not None
        assert on_disk(tmp_path) == input_size(requests()) + counted
    assert "Traceback" not in caplog.text


@pytest.mark.promise("full-disk")
def test_files_can_be_deleted_from_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delete, removed = Store._delete_rows, list[str]()
    remove = Folder.remove

    def delete_if_there_is_room(store: Store, records: Any, now: int) -> None:
        if not removed:
            refused_commit()
        delete(store, records, now)

    def note(folder: Folder, file_id: str) -> None:
        removed.append(file_id)
        remove(folder, file_id)

    with serve_in_thread(replace(QUIET, batch_dir=tmp_path)) as server:
        file_id = upload(server.client, ["{}"])
        monkeypatch.setattr(Store, "_delete_rows", delete_if_there_is_room)
        monkeypatch.setattr(Folder, "remove", note)
        assert server.client.delete(f"/v1/files/{file_id}").status_code == 200
        assert server.client.get(f"/v1/files/{file_id}").status_code == 404


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of its own in memory, which only root may mount."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a disk can be mounted by root only")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.promise("full-disk")
@pytest.mark.full
def test_on_a_disk_that_is_really_full_no_line_is_lost_and_none_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scheduler, "REST_S", 0.2)
    lines = requests(1_000)
    with small_disk(tmp_path, "16m") as disk, serve_in_thread(replace(QUIET, batch_dir=disk)) as server:
        client, ballast = server.client, disk / "ballast"
        ballast.write_bytes(b"x" * 13 * 1024 * 1024)
        batch_id = create_batch(client, lines)
        wait_until(lambda: caplog.text.count("the disk is full") >= 3, patience_s=60)
        assert server.is_well()
        assert retrieve(client, batch_id)["status"] == "in_progress"
        content = {"file": ("in.jsonl", b"x" * 6_000_000)}
        refused = client.post("/v1/files", data={"purpose": "batch"}, files=content)
        assert (refused.status_code, "no room" in refused.json()["message"]) == (413, True)
        file_id = retrieve(client, batch_id)["input_file_id"]
        assert client.delete(f"/v1/files/{file_id}").status_code == 409
        ballast.unlink()
        batch = ended(client, batch_id)
        assert batch["status"] == "completed"
        assert custom_ids(client, batch["output_file_id"]) == [str(number) for number in range(1_000)]
        for record in (batch["output_file_id"], file_id):
            assert client.delete(f"/v1/files/{record}").status_code == 200
    assert "Traceback" not in caplog.text


@pytest.mark.promise("full-disk")
@pytest.mark.full
def test_a_limit_of_100_mb_holds_at_full_size(tmp_path: Path) -> None:
    limit = 100 * 1024 * 1024
    body = {"input": [f"text {number}" for number in range(100)], "encoding_format": "float"}
    lines = [request_line(str(number), body) for number in range(2_000)]
    most = 0
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path, max_stored_bytes=limit)) as server:
        batch_ids = [create_batch(server.client, lines) for _ in range(4)]
        while any(retrieve(server.client, batch_id)["status"] != "failed" for batch_id in batch_ids):
            most = max(most, on_disk(tmp_path))
        assert most <= limit
        for batch_id in batch_ids:
            batch = retrieve(server.client, batch_id)
            done = custom_ids(server.client, batch["output_file_id"])
            assert done == [str(number) for number in range(len(done))]
            assert len(done) == batch["request_counts"]["completed"] < 2_000
    assert most > limit * 0.9
