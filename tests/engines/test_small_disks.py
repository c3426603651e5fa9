"""A cache folder on a full, small or read-only disk: the model is served all the same, with one warning."""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from support.plain_http import embed
from support.server import live_server
from support.small_exports import save_small_export
from support.texts import short_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES, load_engine, prepared
from vecmill.engines.base import Engine
from vecmill.engines.owned_folders import remove_abandoned
from vecmill.engines.prepared import TEMPORARY
from vecmill.errors import InvalidConfig, UnsupportedModel
from vecmill.hardware.processor import multiplies_bytes
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch
from vecmill.values.engine_plan import EnginePlan


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny_bert(tmp_path / "model", TinyBert())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place for temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(prepared, "_MEMORY_FOLDER", tmp_path / "none")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def free(monkeypatch: pytest.MonkeyPatch, sizes: dict[Path, int]) -> None:
    """Let the disk of each folder have so many bytes free."""

    def usage(path: Path) -> Usage:
        return Usage(10**12, 0, next((size for place, size in sizes.items() if place == path), 10**12))

    monkeypatch.setattr(shutil, "disk_usage", usage)


def load(model: Path, cache_dir: Path, plan: EnginePlan | None = None) -> tuple[ModelDescription, Engine]:
    description = describe_model(locate_model(model))
    return description, load_engine(description, plan or EnginePlan(), cores=2, cache_dir=cache_dir)


def compute(loaded: tuple[ModelDescription, Engine]) -> FloatArray:
    """The embeddings of some texts on every width, and the end of the engine."""
    description, engine = loaded
    batch = Batch.of(Tokenizer.load(description).encode(short_texts(1, 20)))
    values = [engine.run(batch, width=width).values for width in engine.info.lane_widths]
    engine.close()
    return np.stack(values)


@pytest.mark.parametrize("kind", ["safetensors", "exported"])
def test_the_model_is_served_from_memory(
    model: Path,
    temporary: Path,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if kind == "exported":
        model = save_small_export(tmp_path / "exported")
    expected = compute(load(model, tmp_path / "large"))
    free(monkeypatch, {tmp_path / "small": 1_000})
    with caplog.at_level(logging.WARNING):
        values = compute(load(model, tmp_path / "small"))
    assert np.abs(values - expected).max() <= 1e-5
    (warning,) = caplog.messages
    assert warning.startswith(f"The prepared model cannot be kept in {tmp_path / 'small'} (No space left on")
    assert "it needs about 1 MB, and 0 MB are free there. The model is served from memory" in warning
    assert "--cache-dir" in warning
    assert list((tmp_path / "small").iterdir()) == []
    assert list(temporary.iterdir()) == []


OPENVINO = EnginePlan("openvino")
NEEDS_OPENVINO = pytest.mark.skipif(
    not ENGINES["openvino"].is_installed, reason="openvino is not installed: pip install 'vecmill[openvino]'"
)


@NEEDS_OPENVINO
def test_what_needs_files_gets_a_temporary_folder(
    model: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = compute(load(model, tmp_path / "large", OPENVINO))
    free(monkeypatch, {tmp_path / "small": 1_000})
    loaded = load(model, tmp_path / "small", OPENVINO)
    assert [path.name.startswith(TEMPORARY) for path in temporary.iterdir()] == [True]
    remove_abandoned(temporary, TEMPORARY)  # what another process that starts now does
    assert len(list(temporary.iterdir())) == 1
    assert np.array_equal(compute(loaded), expected)
    assert list(temporary.iterdir()) == []


@NEEDS_OPENVINO
def test_without_any_room_the_disks_are_named(
    model: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, {tmp_path / "small": 1_000, temporary: 1_000})
    with pytest.raises(InvalidConfig, match=f"cannot be kept in {temporary} .No space") as caught:
        load(model, tmp_path / "small", OPENVINO)
    assert "or precision fp32" in caught.value.message
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("engine", "function"),
    [
        ("onnx", "onnx.engine._open_call"),
        pytest.param("openvino", "openvino._compile_widths", marks=NEEDS_OPENVINO),
    ],
)
def test_a_model_that_cannot_be_opened_leaves_no_temporary_folder(
    temporary: Path, tmp_path: Path, engine: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnsupportedModel("no such operator")

    save = save_small_export if engine == "onnx" else save_tiny_bert
    free(monkeypatch, {tmp_path / "small": 1_000})
    monkeypatch.setattr(f"vecmill.engines.{function}", fail)
    with pytest.raises(UnsupportedModel, match="no such operator"):
        load(save(tmp_path / "model"), tmp_path / "small", EnginePlan(engine))
    assert list(temporary.iterdir()) == []


LOAD = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.models import locate_model
from vecmill.values.engine_plan import EnginePlan
description = describe_model(locate_model(sys.argv[1]))
load_engine(description, EnginePlan(), cores=1, cache_dir=Path(sys.argv[2])).warm_up()
"""


def test_a_fault_of_the_disk_that_the_runtime_reports_is_no_fault_of_the_model(
    model: Path, tmp_path: Path
) -> None:
    # A limit on the size of files, or a quota: the disk has room, and writing fails all the same.
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", LOAD, str(model), str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"cannot be kept in {cache} (File too large)" in done.stderr
    assert list(cache.iterdir()) == []


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


FP32, INT8 = (), ("--precision", "int8")


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("size=1m", FP32),
        ("size=100m", FP32),
        ("size=150m", FP32),
        ("size=200m", FP32),
        ("size=300m,ro", FP32),
        pytest.param(
            "size=100m",
            INT8,
            marks=pytest.mark.skipif(not multiplies_bytes(), reason="this processor does not multiply bytes"),
        ),
    ],
)
def test_small_disks_at_full_size(tmp_path: Path, options: str, arguments: tuple[str, ...]) -> None:
    (tmp_path / "server").mkdir()
    with mounted(tmp_path / "server" / "cache", options) as cache:
        command = ("--no-access-log", *arguments)
        with live_server(tmp_path / "server", arguments=command, timeout_s=300) as server:
            assert embed(server.url, ["a text"]).shape == (1, 384)
            log = server.log.read_text()
        # The check of a precision loads the model in fp32 too, and prepares nothing for it.
        assert log.count("The model is served from memory") == 1
        assert f"cannot be kept in {cache}" in log
        assert [*cache.rglob("model.*"), *cache.glob(".unfinished-*")] == []


@pytest.mark.full
def test_a_kill_during_preparation_leaves_nothing_for_long(tmp_path: Path) -> None:
    cache, folder = tmp_path / "server" / "cache", tmp_path / "server"
    folder.mkdir()
    environment: dict[str, Any] = {**os.environ, "VECMILL_CACHE_DIR": str(cache), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "vecmill", "serve", "--port", "0"]
    for _ in range(3):
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while not [path for path in cache.glob(".unfinished-*/*") if path.stat().st_size > 10**6]:
                assert process.poll() is None
            process.kill()
        assert len([*cache.glob(".unfinished-*")]) == 1
    with live_server(folder, arguments=("--no-access-log",)):
        assert [*cache.glob(".unfinished-*")] == []
        (kept,) = cache.glob("*/manifest.json")  # beside files about models
    assert json.loads(kept.read_text()).keys() == {"model.onnx", "model.weights"}
    assert [*tmp_path.glob("vecmill-*")] == []


START = """
import sys
from pathlib import Path
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.models import locate_model
from vecmill.values.engine_plan import EnginePlan
load_engine(describe_model(locate_model()), EnginePlan(), cores=1, cache_dir=Path(sys.argv[1])).warm_up()
"""


@pytest.mark.full
def test_processes_that_start_at_once_leave_each_others_folders(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", START, str(cache)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    while len([*cache.glob(".unfinished-*/owner.lock")]) < 2:
        assert any(process.poll() is None for process in started)
    started[0].kill()
    outcomes = [(process.communicate()[1], process.returncode) for process in started]
    assert outcomes[1:] == [("", 0)] * 3
    subprocess.run(command, check=True)
    assert len([*cache.glob("*/manifest.json")]) == 1  # beside files about models
    assert [*cache.glob(".*")] == []
