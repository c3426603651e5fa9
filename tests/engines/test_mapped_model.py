"""Files that are changed while an engine has them open: no result comes from changed files."""

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vecmill.engines.mapped_model import MappedModel
from vecmill.engines.prepared import WEIGHTS_FILE, BuiltGraph, PreparedModel, fill_temporary, prepare_model
from vecmill.errors import CorruptModel, DeviceLost

WEIGHTS = b"weights" * 1_000


def fill(folder: Path) -> None:
    (folder / WEIGHTS_FILE).write_bytes(WEIGHTS)


class Sessions:
    """Opens sessions, which are the content of the file; `count` of them until now."""

    def __init__(self, prepared: PreparedModel) -> None:
        self.prepared = prepared
        self.count = 0

    def __call__(self) -> bytes:
        self.count += 1
        return (self.prepared.folder / WEIGHTS_FILE).read_bytes()


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(prepare_model(tmp_path, "model", fill))


@pytest.fixture
def mapped(sessions: Sessions) -> MappedModel[bytes]:
    return MappedModel(sessions.prepared, sessions)


def write(path: Path, content: bytes) -> None:
    """Change a file in place, as `cp` as root does."""
    path.chmod(0o600)
    path.write_bytes(content)


def truncate(path: Path) -> None:
    write(path, b"")


def overwrite(path: Path) -> None:
    write(path, b"x" * len(WEIGHTS))


@pytest.mark.parametrize("change", [truncate, overwrite])
def test_files_that_were_changed_before_a_call_are_prepared_and_opened_again(
    sessions: Sessions, mapped: MappedModel[bytes], change: Callable[[Path], None]
) -> None:
    change(sessions.prepared.folder / WEIGHTS_FILE)
    assert mapped.run(bytes) == WEIGHTS
    assert mapped.run(bytes) == WEIGHTS
    assert sessions.count == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_during_which_files_were_changed_is_repeated(
    sessions: Sessions, mapped: MappedModel[bytes], fails: bool
) -> None:
    calls: list[bytes] = []

    def compute(opened: bytes) -> int:
        calls.append(opened)
        if len(calls) == 1:
            overwrite(sessions.prepared.folder / WEIGHTS_FILE)
            if fails:
                raise ValueError("the graph makes no sense")
        return len(calls)

    assert mapped.run(compute) == 2
    assert calls == [WEIGHTS] * 2
    assert sessions.count == 2


def test_callers_that_notice_the_same_change_wait_for_one_of_them(
    sessions: Sessions, mapped: MappedModel[bytes]
) -> None:
    both = threading.Barrier(2, timeout=30)
    overwrite(sessions.prepared.folder / WEIGHTS_FILE)

    def run(_: int) -> bytes:
        both.wait()
        return mapped.run(bytes)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [WEIGHTS] * 2
    assert sessions.count == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: shutil.rmtree(path.parent),
        lambda path: os.replace(shutil.copy(path, path.with_name("copy")), path),
        lambda path: path.chmod(0o600),
    ],
    ids=["removed", "folder removed", "replaced", "new rights"],
)
def test_files_that_are_removed_or_replaced_need_not_be_opened_again(
    sessions: Sessions, mapped: MappedModel[bytes], change: Callable[[Path], object]
) -> None:
    change(sessions.prepared.folder / WEIGHTS_FILE)
    assert mapped.run(bytes) == WEIGHTS
    assert sessions.count == 1


def test_an_error_of_a_call_from_unchanged_files_is_raised(
    sessions: Sessions, mapped: MappedModel[bytes]
) -> None:
    with pytest.raises(ZeroDivisionError):
        mapped.run(lambda _: 1 / 0)
    assert sessions.count == 1


def test_without_its_source_a_changed_model_is_lost(sessions: Sessions, mapped: MappedModel[bytes]) -> None:
    def fail() -> PreparedModel:
        raise CorruptModel("The model directory is gone.")

    sessions.prepared.prepare_again = fail
    overwrite(sessions.prepared.folder / WEIGHTS_FILE)
    for _ in range(2):
        with pytest.raises(DeviceLost, match="were changed while they were served, and cannot be opened"):
            mapped.run(bytes)


def test_a_graph_of_the_model_directory_cannot_be_prepared_again(tmp_path: Path) -> None:
    graph, weights, other = (tmp_path / name for name in ("model.onnx", "model.onnx_data", "README.md"))
    for path in (graph, weights, other):
        path.write_bytes(b"as published")
    prepared = fill_temporary(fill)
    prepared.built = BuiltGraph(graph)
    mapped: MappedModel[None] = MappedModel(prepared, lambda: None)
    write(other, b"a better text")
    assert mapped.run(lambda _: "computed") == "computed"
    write(weights, b"those of another model")
    with pytest.raises(DeviceLost):
        mapped.run(lambda _: "computed")
    prepared.close()


def test_weights_that_stay_in_the_model_directory_cannot_be_prepared_again(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"as published")
    built = BuiltGraph(b"graph", {"published": memoryview(b"weights")}, (weights,))
    mapped: MappedModel[list[int]] = MappedModel(PreparedModel(Path(), built=built), list)
    assert mapped.run(len) == 0
    write(weights, b"those of another model")
    with pytest.raises(DeviceLost, match="were changed while they were served"):
        mapped.run(len)


def test_a_graph_in_memory_needs_no_files() -> None:
    mapped: MappedModel[list[int]] = MappedModel(
        PreparedModel(Path(), built=BuiltGraph(b"graph", {"made": memoryview(b"weights")})), list
    )
    assert mapped.run(len) == 0
    mapped.renew()
    assert mapped.run(len) == 0
