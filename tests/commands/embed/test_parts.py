"""A part is there whole or not at all, and only for the run that it was made for."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from vecmill.commands.embed.parts import PartStore, folder_of, open_part_store, refuse_existing, write_whole
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.values.aliases import FloatArray

DIM = 8
RUN: Mapping[str, object] = {"input": "abc", "model": {"name": "m"}, "prompt": [None, None]}


def rows(count: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).standard_normal((count, DIM), np.float32)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "vectors.npy"


def part_file(output: Path) -> Path:
    (file,) = folder_of(output).glob("part-*")
    return file


def test_what_was_written_is_there_for_the_next_run(output: Path) -> None:
    with open_part_store(output, RUN, DIM) as parts:
        assert not parts.contains(3, 5)
        parts.write(3, rows(5))
    with open_part_store(output, RUN, DIM) as parts:
        assert parts.contains(3, 5)
        assert np.array_equal(parts.read(3).embeddings, rows(5))
        assert not parts.contains(4, 5)


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped", "of another shape", "no archive"])
def test_a_damaged_part_counts_as_missing(
    damage: str, output: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_part_store(output, RUN, DIM) as parts:
        parts.write(0, rows(4 if damage == "of another shape" else 5))
        file = part_file(output)
        content = bytearray(file.read_bytes())
        match damage:
            case "truncated":
                content = content[: len(content) // 2]
            case "emptied":
                content.clear()
            case "flipped":
                content[content.index(rows(5)[2, 3].tobytes())] ^= 1
            case "no archive":
                content = bytearray(b"hello")
        file.write_bytes(content)
        assert not parts.contains(0, 5)
        assert "embedded again" in caplog.text
        parts.write(0, rows(5))
        assert parts.contains(0, 5)


def test_an_unfinished_part_is_not_there(output: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(file: object) -> None:
        raise Stopped

    with open_part_store(output, RUN, DIM) as parts:
        with pytest.raises(Stopped):
            write_whole(parts.folder / "part-0000000.npz", stop)
        assert not parts.contains(0, 5)


@pytest.mark.parametrize("name", RUN)
def test_parts_of_another_run_are_refused(name: str, output: Path) -> None:
    with open_part_store(output, RUN, DIM):
        pass
    with (
        pytest.raises(InvalidConfig, match=f"another {name}"),
        open_part_store(output, {**RUN, name: 1}, DIM),
    ):
        pass


@pytest.mark.parametrize("record", ["{", "[" * 100_000], ids=["cut", "deep"])
def test_a_damaged_record_of_the_run_is_refused(record: str, output: Path) -> None:
    with open_part_store(output, RUN, DIM) as parts:
        (parts.folder / "run.json").write_text(record, "utf-8")
    with pytest.raises(InvalidConfig, match="is damaged"), open_part_store(output, RUN, DIM):
        pass


def test_parts_of_nobody_knows_what_are_not_taken(output: Path) -> None:
    with open_part_store(output, RUN, DIM) as parts:
        parts.write(0, rows(5))
        (parts.folder / "run.json").unlink()
    with pytest.raises(InvalidConfig, match="contains other files"), open_part_store(output, RUN, DIM):
        pass


def test_a_removal_that_was_stopped_leaves_what_says_whose_the_parts_are(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *arguments, **details: None)
        with open_part_store(output, RUN, DIM) as parts:
            parts.write(0, rows(5))
            parts.finish(lambda path: path.write_bytes(b"rows"))
    assert list(folder_of(output).glob("part-*")) == []
    with open_part_store(output, RUN, DIM) as parts:
        assert parts.is_finished


def test_a_file_system_without_locks_is_named(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(InvalidConfig, match="cannot be locked: No locks available"),
        open_part_store(output, RUN, DIM),
    ):
        pass


def test_a_second_process_is_kept_out(output: Path) -> None:
    with (
        open_part_store(output, RUN, DIM),
        pytest.raises(InvalidConfig, match="Another process"),
        open_part_store(output, RUN, DIM),
    ):
        pass


def test_the_output_appears_whole_and_the_parts_go(output: Path) -> None:
    with open_part_store(output, RUN, DIM) as parts:
        assert not parts.is_finished
        parts.finish(lambda path: path.write_bytes(b"rows"))
    assert output.read_bytes() == b"rows"
    assert not folder_of(output).exists()
    with pytest.raises(InvalidConfig, match="exists already"):
        refuse_existing(output)


def test_a_stop_between_the_name_and_the_removal_is_recognised(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as stopped:
        stopped.setattr(PartStore, "remove", lambda parts: None)
        with open_part_store(output, RUN, DIM) as parts:
            parts.finish(lambda path: path.write_bytes(b"rows"))
    refuse_existing(output)
    with open_part_store(output, RUN, DIM) as parts:
        assert parts.is_finished
    (output.parent / "another").write_bytes(b"somebody else's")
    (output.parent / "another").replace(output)
    with pytest.raises(InvalidConfig, match="exists already"):
        refuse_existing(output)


def test_a_stop_before_the_name_is_made_good(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(Exception):
        pass

    def stop(path: Path, target: Path) -> None:
        if target == output:
            raise Stopped
        replace(path, target)

    replace = Path.replace
    with monkeypatch.context() as stopped, open_part_store(output, RUN, DIM) as parts:
        stopped.setattr(Path, "replace", stop)
        with pytest.raises(Stopped):
            parts.finish(lambda path: path.write_bytes(b"rows"))
    assert not output.exists()
    with open_part_store(output, RUN, DIM) as parts:
        assert not parts.is_finished
        parts.finish(lambda path: path.write_bytes(b"rows"))
    assert output.read_bytes() == b"rows"


def test_what_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="There is no folder"):
        refuse_existing(tmp_path / "missing" / "a.npy")
    (tmp_path / "a.npy.parts").write_text("a file", "utf-8")
    with (
        pytest.raises(InvalidConfig, match=r"cannot be written: File exists"),
        open_part_store(tmp_path / "a.npy", RUN, DIM),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(InvalidConfig, match=f"The folder {tmp_path} cannot be written: Permission denied"):
        refuse_existing(tmp_path / "a.npy")


def test_a_missing_part_is_a_sentence(output: Path) -> None:
    with (
        open_part_store(output, RUN, DIM) as parts,
        pytest.raises(InvalidCorpus, match="Run the same command"),
    ):
        parts.read(0)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fills the disk when it is called."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(os, "fsync", fail)


def test_a_limit_of_the_size_of_files_is_told_with_its_cure(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: object) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    with pytest.raises(InvalidConfig, match=r"File too large\. Raise the limit .*ulimit -f"):
        write_whole(output, refuse, output)


def test_on_a_full_disk_it_says_that_the_finished_parts_are_kept(
    output: Path, full_disk: Callable[[], None]
) -> None:
    with open_part_store(output, RUN, DIM) as parts:
        parts.write(0, rows(5))
        full_disk()
        kept = r"No space left .* are kept in .* same command again"
        with pytest.raises(InvalidConfig, match=kept):
            parts.write(1, rows(5))
        with pytest.raises(InvalidConfig, match=kept):
            parts.finish(lambda path: path.write_bytes(b""))


def test_on_a_disk_that_is_full_from_the_start_no_part_is_claimed(
    output: Path, full_disk: Callable[[], None]
) -> None:
    with open_part_store(output, RUN, DIM) as parts:
        full_disk()
        with pytest.raises(InvalidConfig, match=r"No space left on device\.$"):
            parts.write(0, rows(5))


def test_nothing_is_left_behind_a_link_to_another_disk(output: Path, tmp_path: Path) -> None:
    other = tmp_path / "other disk"
    other.mkdir()
    folder_of(output).symlink_to(other)
    for _ in range(2):
        with open_part_store(output, RUN, DIM) as parts:
            parts.write(0, rows(5))
            parts.finish(lambda path: path.write_bytes(b"vectors"))
        assert output.read_bytes() == b"vectors"
        assert list(other.iterdir()) == []
        assert folder_of(output).is_symlink()
        output.unlink()
