"""Downloaded files: each has the digest that the hub states, whatever happened on the way."""

import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from filelock import FileLock
from huggingface_hub.utils._shared_blobs import publish_blob_to_shared_store

from support.fake_hub import FakeHub, Repository, point_client_at, run_fake_hub
from vecmill.errors import ModelNotFound
from vecmill.models import downloads
from vecmill.models.directory import read_json
from vecmill.models.downloads import DownloadProgress
from vecmill.models.hub import HubName, fetch_model

NAME = HubName("owner/model")
FILES = {
    "config.json": b"{}",
    "empty.txt": b"",
    "model.safetensors": bytes(range(256)) * 1_000,
}
NEVER = {"modeling_own.py": b"raise SystemExit", "pytorch_model.bin": b"pickle"}
LARGE = frozenset({"model.safetensors"})  # known by their SHA-256


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with run_fake_hub() as hub:
        hub.repositories[NAME.repository] = Repository({**FILES, **NEVER}, is_large=LARGE)
        point_client_at(hub, tmp_path, monkeypatch)
        yield hub


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def blobs(cache: Path) -> set[str]:
    return {path.name for path in cache.glob("models--*/blobs/*")}


def test_files_with_the_same_content_are_fetched_once(hub: FakeHub) -> None:
    files = {**FILES, "copy.json": FILES["config.json"]}
    hub.repositories[NAME.repository] = Repository(files, is_large=LARGE)
    assert contents(fetch_model(NAME)) == files
    assert len(hub.served) == 2  # an empty file has no part that is missing


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_byte_that_arrives_wrong_is_fetched_again(hub: FakeHub, name: str) -> None:
    hub.damaged[name] = 1
    assert contents(fetch_model(NAME)) == FILES
    assert hub.damaged[name] == 0


@pytest.mark.parametrize(
    ("name", "kind"), [("config.json", "SHA-1"), ("model.safetensors", "SHA-256")], ids=["small", "large"]
)
def test_a_file_that_stays_damaged_is_refused_and_deleted(
    hub: FakeHub, tmp_path: Path, name: str, kind: str
) -> None:
    hub.damaged[name] = 100
    expected = rf"{name} arrived 2 times with another {kind} than the hub states"
    with pytest.raises(ModelNotFound, match=expected):
        fetch_model(NAME)
    digest = hub.repositories[NAME.repository].digest(name)
    assert not {stored for stored in blobs(tmp_path) if stored.startswith(digest)}
    hub.damaged.clear()
    assert contents(fetch_model(NAME)) == FILES


def test_an_interrupted_file_is_verified_as_a_whole(hub: FakeHub, tmp_path: Path) -> None:
    hub.cut_short.add("model.safetensors")
    digest = hub.repositories[NAME.repository].digest("model.safetensors")
    folder = tmp_path / "models--owner--model/blobs"
    folder.mkdir(parents=True)
    (folder / f"{digest}.incomplete").write_bytes(FILES["model.safetensors"][:1_000])
    assert contents(fetch_model(NAME)) == FILES
    assert ("model.safetensors", "bytes=1000-") in hub.served


@pytest.mark.parametrize("size", [256_000, 300_000], ids=["whole", "too long"])
def test_a_partial_file_of_other_content_is_replaced(hub: FakeHub, tmp_path: Path, size: int) -> None:
    digest = hub.repositories[NAME.repository].digest("model.safetensors")
    folder = tmp_path / "models--owner--model/blobs"
    folder.mkdir(parents=True)
    (folder / f"{digest}.incomplete").write_bytes(b"x" * size)
    assert contents(fetch_model(NAME)) == FILES
    assert blobs(tmp_path) == {hub.repositories[NAME.repository].digest(name) for name in FILES}


def test_a_hub_that_sends_the_whole_file_again_is_verified(tmp_path: Path) -> None:
    # As the client does when a hub ignores the range that it asked for.
    content = b"abc" * 1_000
    blob = tmp_path / hashlib.sha256(content).hexdigest()
    wanted = downloads.HubFile(
        "file", "http://127.0.0.1:9", len(content), blob, tmp_path / "link", tmp_path / "lock"
    )
    wanted.partial.write_bytes(b"xyz")
    with wanted.partial.open("r+b") as file:
        hashed = downloads._HashedFile(file, wanted)
        assert hashed.tell() == 3
        hashed.seek(0)
        hashed.truncate()
        hashed.write(content)
        assert hashed.digest == blob.name
    assert wanted.partial.read_bytes() == content


def test_code_is_fetched_only_for_those_who_trust_it(hub: FakeHub) -> None:
    commit = hub.repositories[NAME.repository].commit
    name = HubName(NAME.repository, commit)
    assert contents(fetch_model(name)) == FILES
    trusted = contents(fetch_model(name, code=True))
    assert trusted == {**FILES, "modeling_own.py": NEVER["modeling_own.py"]}
    hub.asked.clear()
    fetch_model(name, code=True)
    assert hub.asked == []


def test_files_that_the_client_stored_without_links_are_not_fetched_again(
    hub: FakeHub, tmp_path: Path
) -> None:
    folder = fetch_model(NAME)
    for path in folder.iterdir():
        path.resolve().replace(path)
    shutil.rmtree(tmp_path / "models--owner--model/blobs")
    hub.served.clear()
    assert contents(fetch_model(NAME)) == FILES
    assert hub.served == []


def test_a_single_file_is_counted_in_the_singular(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), DownloadProgress("owner/model", 1, 2_000_000):
        assert caplog.messages == ["downloading owner/model: 1 file, 2.0 MB"]


def test_files_that_do_not_fit_are_not_begun(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, 200_000))
    expected = (
        f"owner/model could not be downloaded: the disk of {tmp_path} has 200000 bytes free, and the missing "
        "files need 256002 bytes. Free space, or choose a folder on another disk with HF_HOME."
    )
    with pytest.raises(ModelNotFound) as caught:
        fetch_model(NAME)
    assert caught.value.message.startswith(expected)
    assert hub.served == []


def test_a_disk_that_fills_up_is_named(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(downloads._HashedFile, "write", fail)
        with pytest.raises(
            ModelNotFound, match=f"the disk of {tmp_path} has .* the missing files need 256002"
        ):
            fetch_model(NAME)
    assert contents(fetch_model(NAME)) == FILES


def test_a_connection_that_is_reset_is_opened_again(hub: FakeHub) -> None:
    hub.resets |= {"config.json": 2, "model.safetensors": 3}
    assert contents(fetch_model(NAME)) == FILES
    assert hub.resets == {"config.json": 0, "model.safetensors": 0}


def test_connections_that_are_always_reset_are_given_up(hub: FakeHub) -> None:
    hub.resets["model.safetensors"] = 100
    with pytest.raises(ModelNotFound, match=r"could not be downloaded: .* Try again: partial downloads"):
        fetch_model(NAME)
    assert [path for path, _ in hub.served].count("model.safetensors") == 5


def test_a_file_that_goes_on_after_its_size_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    hub.endless.add("config.json")
    with pytest.raises(ModelNotFound, match=r"config\.json has more than the 2 bytes that the hub states"):
        fetch_model(NAME)
    digest = hub.repositories[NAME.repository].digest("config.json")
    (partial,) = tmp_path.glob(f"models--*/blobs/{digest}.incomplete")
    assert partial.stat().st_size <= 2
    hub.endless.clear()
    assert contents(fetch_model(NAME)) == FILES


def test_files_are_of_one_commit_if_the_branch_moves_meanwhile(hub: FakeHub) -> None:
    other = {"config.json": b'{"new": 1}', "model-00001-of-00001.safetensors": b"new"}
    hub.updates["model.safetensors"] = Repository(other)
    assert contents(fetch_model(NAME)) == FILES
    assert contents(fetch_model(NAME)) == other


def test_a_partial_file_may_be_completed_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = (tmp_path / name for name in ("blob", "link", "lock"))
    wanted = downloads.HubFile("file", "http://127.0.0.1:9", 9, *paths)
    # It was there a moment ago.
    monkeypatch.setattr(Path, "exists", lambda path: path == wanted.partial)
    assert wanted.missing_bytes == 9


def test_a_second_process_says_that_it_waits_for_the_download_of_the_first(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(downloads, "_PATIENCE_S", 0.05)
    digest = hub.repositories[NAME.repository].digest("model.safetensors")
    lock = tmp_path / ".locks/models--owner--model" / f"{digest}.lock"
    lock.parent.mkdir(parents=True)
    held = FileLock(lock, thread_local=False)
    held.acquire()

    class Released(logging.Handler):
        """The first process, which ends when the second waits."""

        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "waiting for another process that downloads model.safetensors":
                held.release()

    with caplog.at_level(logging.INFO, "vecmill.models"):
        downloads.logger.addHandler(first := Released())
        try:
            assert contents(fetch_model(NAME)) == FILES
        finally:
            downloads.logger.removeHandler(first)
    assert not held.is_locked


def test_a_commit_of_which_the_cache_has_some_files_is_completed(hub: FakeHub, tmp_path: Path) -> None:
    # As a library leaves it that read nothing but the settings.
    commit = hub.repositories[NAME.repository].commit
    folder = tmp_path / "models--owner--model/snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(FILES["config.json"])
    assert contents(fetch_model(HubName(NAME.repository, commit))) == FILES
    hub.asked.clear()
    assert contents(fetch_model(HubName(NAME.repository, commit))) == FILES
    assert hub.asked == []


def test_a_commit_that_an_older_client_downloaded_is_used_without_the_hub(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = HubName(NAME.repository, hub.repositories[NAME.repository].commit)
    folder = tmp_path / "models--owner--model/snapshots" / str(name.revision)
    folder.mkdir(parents=True)
    for file, content in FILES.items():
        (folder / file).write_bytes(content)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert contents(fetch_model(name)) == FILES


def test_files_that_the_client_shares_between_models_are_read(hub: FakeHub, tmp_path: Path) -> None:
    """The hub's client moves large files that it downloads itself to a folder for all models."""
    folder = fetch_model(NAME)
    blob = (folder / "config.json").resolve()
    assert publish_blob_to_shared_store(
        blob_path=str(blob), xet_hash="0123456789abcdef" * 4, cache_dir=tmp_path, expected_size=2
    )
    assert blob.is_symlink()
    assert read_json(folder, "config.json") == {}
    assert contents(fetch_model(NAME)) == FILES


def test_a_mirror_may_have_etags_of_its_own(hub: FakeHub) -> None:
    hub.etag = "65f1a2b3-3e800"
    assert contents(fetch_model(NAME)) == FILES
    assert sorted(path for path, _ in hub.served) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("name", ["../evil.json", "/evil.json", "a/../../evil.json", "..\\evil.json"])
def test_names_that_lead_out_of_the_cache_are_refused(hub: FakeHub, tmp_path: Path, name: str) -> None:
    hub.repositories[NAME.repository] = Repository({**FILES, name: b"evil"})
    with pytest.raises(ModelNotFound, match="could not be downloaded"):
        fetch_model(NAME)
    assert not [path for path in tmp_path.rglob("*evil*") if path.is_file()]
