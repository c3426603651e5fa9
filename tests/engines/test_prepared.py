"""A prepared folder exists whole or not at all, whoever starts when."""

import json
import logging
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from vecmill import MillConfig
from vecmill.engines import prepared
from vecmill.engines.owned_folders import OwnedFolder
from vecmill.engines.prepared import (
    MODEL_FILE,
    PREPARED_FILE,
    UNFINISHED,
    WEIGHTS_FILE,
    BuiltGraph,
    PreparedModel,
    prepare_model,
)
from vecmill.errors import CorruptModel, InvalidConfig
from vecmill.hardware.processor import processor_name


class Filler:
    """Fills folders and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / MODEL_FILE).write_bytes(b"graph")
        (folder / WEIGHTS_FILE).write_bytes(b"weights" * 1_000)


@pytest.fixture
def fill() -> Filler:
    return Filler()


def leftovers(cache_dir: Path) -> list[str]:
    return sorted(path.name for path in cache_dir.iterdir() if path.name.startswith("."))


def test_the_second_start_finds_what_the_first_prepared(tmp_path: Path, fill: Filler) -> None:
    first = prepare_model(tmp_path / "cache", "model", fill)
    second = prepare_model(tmp_path / "cache", "model", fill)
    assert fill.calls == 1
    assert first.path == second.path == tmp_path / "cache" / "model" / MODEL_FILE
    assert second.path.read_bytes() == b"graph"
    assert leftovers(tmp_path / "cache") == []


def test_the_log_says_when_a_model_is_prepared(
    tmp_path: Path, fill: Filler, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        prepare_model(tmp_path, "model", fill)
        assert caplog.messages == ["Preparing the model for this processor; this happens once."]
        prepare_model(tmp_path, "model", fill)
    assert len(caplog.messages) == 1


def flip_a_byte(folder: Path) -> None:
    path = folder / WEIGHTS_FILE
    damaged = bytearray(path.read_bytes())
    damaged[3_000] ^= 1
    path.write_bytes(damaged)


def tear(folder: Path) -> None:
    os.truncate(folder / WEIGHTS_FILE, 100)


def lose_the_graph(folder: Path) -> None:
    (folder / MODEL_FILE).unlink()


def lose_the_manifest(folder: Path) -> None:
    (folder / PREPARED_FILE).unlink()


def spoil_the_manifest(folder: Path) -> None:
    (folder / PREPARED_FILE).write_text("{", encoding="utf-8")


def forget_a_file(folder: Path) -> None:
    (folder / PREPARED_FILE).write_text(json.dumps({MODEL_FILE: None}), encoding="utf-8")


def test_a_failed_preparation_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / MODEL_FILE).write_bytes(b"half")
        raise CorruptModel("no such tensor")

    with pytest.raises(CorruptModel, match="no such tensor"):
        prepare_model(tmp_path, "model", fail)
    assert list(tmp_path.iterdir()) == []


def test_starts_at_the_same_time_share_one_folder(tmp_path: Path, fill: Filler) -> None:
    together = threading.Barrier(4)

    def fill_together(folder: Path) -> None:
        together.wait()
        fill(folder)

    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(prepare_model(tmp_path, "model", fill_together).path))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "model" / MODEL_FILE] * 4
    assert found[0].read_bytes() == b"graph"
    assert leftovers(tmp_path) == []


def test_a_damaged_folder_that_another_process_replaces_first_is_used(
    tmp_path: Path, fill: Filler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = prepare_model(tmp_path, "model", fill).folder
    other = prepare_model(tmp_path / "other", "model", fill).folder
    tear(folder)
    move_away = prepared._move_away

    def move_away_slowly(damaged: Path) -> None:
        move_away(damaged)
        other.rename(damaged)  # of a process that found the same damage

    monkeypatch.setattr(prepared, "_move_away", move_away_slowly)
    assert prepare_model(tmp_path, "model", fill).folder == folder
    assert "cannot be kept" not in caplog.text
    assert leftovers(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, fill: Filler, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        model = prepare_model(blocked / "cache", "model", fill)
    assert "cannot be kept" in caplog.text
    assert model.path.read_bytes() == b"graph"
    model.close()
    assert not model.folder.exists()


def test_without_any_room_the_person_is_told(tmp_path: Path) -> None:
    def run_out(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(InvalidConfig, match="No space left on device"):
        prepare_model(tmp_path, "model", run_out)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_though_nothing_is_prepared(
    tmp_path: Path, fill: Filler
) -> None:
    prepare_model(tmp_path, "model", fill)
    left = OwnedFolder.make(tmp_path, UNFINISHED)
    (left.path / WEIGHTS_FILE).write_bytes(b"half")
    prepare_model(tmp_path, "model", fill)
    assert leftovers(tmp_path) == [left.path.name]  # this process lives
    os.close(left.lock or 0)
    prepare_model(tmp_path, "model", fill)
    assert leftovers(tmp_path) == []
    assert fill.calls == 1


def test_a_changed_model_is_restored_before_it_is_opened_again(tmp_path: Path, fill: Filler) -> None:
    model = prepare_model(tmp_path, "model", fill)
    model.restore()
    assert fill.calls == 1
    for damage in (shutil.rmtree, tear):
        damage(model.folder)
        model.restore()
        assert (model.folder / WEIGHTS_FILE).read_bytes() == b"weights" * 1_000
    assert fill.calls == 3


def test_a_temporary_model_is_restored_too(
    tmp_path: Path, fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_MEMORY_FOLDER", tmp_path / "none")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    model = prepare_model(tmp_path / "file" / "cache", "model", fill)
    model.restore()
    assert fill.calls == 1
    shutil.rmtree(model.folder)
    model.restore()
    assert model.path.read_bytes() == b"graph"
    model.close()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_prepared_files_cannot_be_written(tmp_path: Path, fill: Filler) -> None:
    folder = prepare_model(tmp_path, "model", fill).folder
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == dict.fromkeys([PREPARED_FILE, MODEL_FILE, WEIGHTS_FILE], 0o444)


def make_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"not a folder")


def make_folders(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
        path.mkdir()


def list_strings(folder: Path) -> None:
    rewrite_manifest(folder, ["model.onnx", 3, None])


def leave_the_folder(folder: Path) -> None:
    rewrite_manifest(folder, {"../../\0": {"size": 1, "crc32": 0}})


def nest_deeply(folder: Path) -> None:
    (folder / PREPARED_FILE).chmod(0o644)
    (folder / PREPARED_FILE).write_text("[" * 100_000)


def use_sha256(folder: Path) -> None:
    rewrite_manifest(folder, {MODEL_FILE: {"size": 5, "sha256": "0" * 64}})


def rewrite_manifest(folder: Path, document: object) -> None:
    (folder / PREPARED_FILE).chmod(0o644)
    (folder / PREPARED_FILE).write_text(json.dumps(document))


@pytest.mark.parametrize("byte", [0, 3_499, 3_500, 6_999])
def test_each_part_of_a_file_is_checked(
    tmp_path: Path, fill: Filler, monkeypatch: pytest.MonkeyPatch, byte: int
) -> None:
    monkeypatch.setattr(prepared, "_PART_BYTES", 1_000)
    folder = prepare_model(tmp_path, "model", fill).folder
    prepare_model(tmp_path, "model", fill)
    assert fill.calls == 1
    (folder / WEIGHTS_FILE).chmod(0o644)
    with (folder / WEIGHTS_FILE).open("r+b") as file:
        file.seek(byte)
        file.write(b"X")
    prepare_model(tmp_path, "model", fill)
    assert fill.calls == 2


def test_a_manifest_of_an_earlier_release_has_one_checksum_for_each_file(
    tmp_path: Path, fill: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_PART_BYTES", 1_000)
    folder = prepare_model(tmp_path, "model", fill).folder
    contents = {name: (folder / name).read_bytes() for name in (MODEL_FILE, WEIGHTS_FILE)}
    rewrite_manifest(
        folder, {name: {"size": len(one), "crc32": zlib.crc32(one)} for name, one in contents.items()}
    )
    prepare_model(tmp_path, "model", fill)
    assert fill.calls == 1


LOSSES = [lose_the_graph, lose_the_manifest]  # of which nothing is said
DAMAGES = [flip_a_byte, tear, spoil_the_manifest, forget_a_file]
GARBAGE = [make_a_file, make_folders, list_strings, leave_the_folder, nest_deeply, use_sha256]


@pytest.mark.parametrize("change", [*LOSSES, *DAMAGES, *GARBAGE], ids=lambda change: change.__name__)
def test_damage_garbage_and_manifests_of_other_versions_are_prepared_again_with_a_sentence(
    tmp_path: Path, fill: Filler, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    folder = prepare_model(tmp_path, "model", fill).folder
    change(folder)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert prepare_model(tmp_path, "model", fill).path == folder / MODEL_FILE
    told = {record.message.startswith(f"{folder} is prepared again: ") for record in caplog.records}
    assert told == (set() if change in LOSSES else {True})
    assert (folder / MODEL_FILE).read_bytes() == b"graph"
    assert (folder / WEIGHTS_FILE).read_bytes() == b"weights" * 1_000
    assert fill.calls == 2
    assert leftovers(tmp_path) == []


def test_a_prepared_model_on_a_read_only_disk_is_used(
    tmp_path: Path, fill: Filler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare_model(tmp_path, "model", fill)
    for name in ("mkdir", "rename", "rmdir", "unlink", "chmod"):
        monkeypatch.setattr(os, name, refuse_to_write)
    with caplog.at_level(logging.WARNING):
        assert prepare_model(tmp_path, "model", fill).folder == tmp_path / "model"
    assert (fill.calls, caplog.messages) == (1, [])


def refuse_to_write(*_: object, **__: object) -> None:
    raise OSError(30, "Read-only file system")


def test_a_folder_that_may_not_be_read_is_done_without(
    tmp_path: Path, fill: Filler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", deny)
    in_memory = PreparedModel(tmp_path, built=BuiltGraph(b"graph"))
    with caplog.at_level(logging.WARNING):
        assert prepare_model(tmp_path, "model", fill, in_memory=lambda: in_memory) is in_memory
    (warning,) = caplog.messages
    assert warning == (
        f"The prepared model cannot be kept in {tmp_path} (Permission denied). The model is served from "
        "memory, and each start prepares it again. Choose another folder with --cache-dir."
    )


def test_the_processor_has_one_name() -> None:
    assert processor_name() == processor_name()
    assert "/" not in processor_name()


def test_a_cache_folder_that_is_a_string_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"cache_dir is .*; it must be a pathlib\.Path"):
        MillConfig(cache_dir="cache")  # type: ignore[arg-type]
