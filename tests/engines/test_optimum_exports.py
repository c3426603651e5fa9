"""Directories that optimum itself exported, fused and quantised, give the rows of the model they came from.

optimum-onnx wants an older transformers than the tests, so it lives in `.venv/optimum`, made here when it is
not there (`tests/optimum.txt`; this needs a network, once).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from support.exported_models import without_weights
from support.rows_check import TOLERANCE, assert_same_rows, compute_rows
from support.source_tree import ROOT
from support.task_models import save_task_model
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.models import locate_model
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision

pytestmark = pytest.mark.full

ENVIRONMENT = ROOT / ".venv/optimum"
REQUIREMENTS = ROOT / "tests/optimum.txt"

EMBED = ("export", "onnx", "--task", "feature-extraction", "--library")
EXPORTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "embedder": ("embedder", (*EMBED, "transformers")),
    "sentences": ("embedder", (*EMBED, "sentence_transformers")),
    "fused": ("embedder", (*EMBED, "transformers", "--optimize", "O2")),
    "classifier": ("classifier", ("export", "onnx", "--task", "text-classification")),
}


@pytest.fixture(scope="module")
def optimum() -> Path:
    """optimum's command."""
    stamp = ENVIRONMENT / "ready"
    if not stamp.exists() or stamp.stat().st_mtime < REQUIREMENTS.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        pip = [str(ENVIRONMENT / "bin/python"), "-m", "pip", "install", "--quiet", "--requirement"]
        subprocess.run([*pip, str(REQUIREMENTS)], check=True)
        stamp.touch()
    return ENVIRONMENT / "bin/optimum-cli"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("optimum")
    save_tiny_bert(root / "embedder", TinyBert())
    save_task_model(root / "classifier", "BertForSequenceClassification", num_labels=3)
    return root


def run(optimum: Path, *arguments: str | Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run([optimum, *arguments], env=environment, capture_output=True, check=True)


def add_graph(model: Path, exported: Path, *, with_modules: bool) -> Path:
    """The directory of a model with the exported graphs in place of its weights."""
    served = without_weights(model, exported.with_name(f"{exported.name}-{with_modules}"))
    for path in [*exported.glob("*.onnx"), *exported.glob("ort_config.json")]:
        shutil.copy(path, served)
    if not with_modules:
        (served / "modules.json").unlink()
        shutil.rmtree(served / "1_Pooling")
    return served


def load(directory: Path) -> OnnxEngine:
    description = describe_model(locate_model(directory))
    return OnnxEngine.load(description, EnginePlan(), cores=2, cache_dir=directory.with_name("cache"))


def sequences() -> list[TokenSequence]:
    random = np.random.default_rng(3)
    lengths = [1, 2, 5, 12, 30, 40, 40, 3, 17, 8]
    return [TokenSequence.of(random.integers(5, 500, length).tolist()) for length in lengths]


def alone(engine: OnnxEngine) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    texts = sequences()
    return compute_rows(lambda batch: engine.run(batch, width=1), texts, [[one] for one in range(len(texts))])


@pytest.mark.parametrize("with_modules", [True, False])
@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_gives_the_rows_of_its_model(
    optimum: Path, models: Path, tmp_path: Path, name: str, with_modules: bool
) -> None:
    model, arguments = EXPORTS[name]
    if model == "classifier" and not with_modules:
        pytest.skip("it has no modules in the first place")
    run(optimum, *arguments, "--model", models / model, tmp_path / name)
    ours = load(models / model)
    theirs = load(add_graph(models / model, tmp_path / name, with_modules=with_modules))
    expected = alone(ours)
    if name in ("embedder", "fused") and not with_modules:
        # Nothing in the directory says that rows are normalised.
        lengths = np.linalg.norm(alone(theirs), axis=1, keepdims=True)
        assert lengths.min() > 1.1
        expected = expected * lengths
    scale = max(1.0, float(np.abs(expected).max()))
    for width in theirs.info.lane_widths:
        assert_same_rows(
            lambda batch, width=width: theirs.run(batch, width=width),  # type: ignore[misc]
            sequences(),
            expected,
            tolerance=TOLERANCE * scale,
        )
    ours.close()
    theirs.close()


def test_a_quantised_export(optimum: Path, models: Path, tmp_path: Path) -> None:
    run(optimum, *EXPORTS["embedder"][1], "--model", models / "embedder", tmp_path / "whole")
    arguments = ("onnxruntime", "quantize", "--avx512_vnni", "--onnx_model")
    run(optimum, *arguments, tmp_path / "whole", "-o", tmp_path / "quantised")
    ours = load(models / "embedder")
    theirs = load(add_graph(models / "embedder", tmp_path / "quantised", with_modules=True))
    assert theirs.info.precision == Precision.INT8
    rows = alone(theirs)
    assert_same_rows(lambda batch: theirs.run(batch, width=2), sequences(), rows, tolerance=1e-6)
    assert (rows * alone(ours)).sum(axis=1).min() > 0.99
    ours.close()
    theirs.close()
