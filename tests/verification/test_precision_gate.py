"""A model that a precision ruins is refused with the figure, at its first start and at every later one."""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import UnsupportedModel
from vecmill.models import ModelDescription, locate_model
from vecmill.models.fingerprint import _hash_content, fingerprint_model
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification import precision_gate
from vecmill.verification.precision_gate import (
    PrecisionResult,
    load_gated_engine,
    measure_precision_loss,
)

# The weights are as large as those of a narrow model: what goes in hardly matters for what comes out.
CHAOTIC = TinyBert(config={"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 6})
TAME = TinyBert(config={"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1})
FAST = EnginePlan("onnx", Precision.INT8_FAST)

pytestmark = pytest.mark.skipif(
    Precision.INT8_FAST not in OnnxEngine.find_capabilities().devices["cpu"],
    reason="no int8 on this processor",
)


def describe(folder: Path, model: TinyBert) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(folder, model)))


@pytest.fixture(scope="module", autouse=True)
def fewer_texts() -> Iterator[None]:
    """Check the precision over texts that are enough to show the loss of these models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision_gate, "TEXTS", 40)
        yield


@pytest.fixture(scope="module")
def chaotic(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe(tmp_path_factory.mktemp("chaotic") / "model", CHAOTIC)


@pytest.fixture(scope="module")
def ruined_cache(chaotic: ModelDescription, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache after a first start, which was refused."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.raises(UnsupportedModel):
        load(chaotic, FAST, cache)
    return cache


def load(description: ModelDescription, plan: EnginePlan, cache_dir: Path) -> None:
    load_gated_engine(description, plan, cores=1, cache_dir=cache_dir).close()


def refuse_to_work(*_: object, **__: object) -> None:
    raise AssertionError("this should not have been done again")


def test_a_ruined_model_is_refused_with_the_figure(chaotic: ModelDescription, ruined_cache: Path) -> None:
    engine = load_engine(chaotic, FAST, cores=1, cache_dir=ruined_cache)
    found = measure_precision_loss(chaotic, engine, cores=1, cache_dir=ruined_cache)
    engine.close()
    assert found.worst_cosine < 0.95
    with pytest.raises(
        UnsupportedModel, match=f"int8-fast .* the lowest cosine .* is {found.worst_cosine:.4f}"
    ):
        load(chaotic, FAST, ruined_cache)


def test_a_refusal_is_remembered(
    chaotic: ModelDescription, ruined_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_gate, "load_engine", refuse_to_work)
    with pytest.raises(UnsupportedModel, match="loses too much"):
        load(chaotic, FAST, ruined_cache)


def test_a_model_that_loses_little_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description = describe(tmp_path / "model", TAME)
    load(description, FAST, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("*.proof.json")
    kept = json.loads(file.read_text())
    assert kept["worst_cosine"] >= precision_gate.MIN_COSINES[Precision.INT8_FAST]
    assert kept["texts"] == precision_gate.TEXTS
    monkeypatch.setattr(precision_gate, "measure_precision_loss", refuse_to_work)
    load(description, FAST, tmp_path / "cache")


@pytest.mark.parametrize(
    "damaged", ["", "{", "[]", '{"worst_cosine": 1.0}', '{"worst_cosine": "x", "texts": 1}']
)
def test_what_cannot_be_read_is_measured_anew(tmp_path: Path, damaged: str) -> None:
    file = tmp_path / "found.proof.json"
    file.write_text(damaged)
    assert precision_gate.PrecisionResult.read(file) is None


def test_a_cosine_that_is_no_number_is_refused(tmp_path: Path) -> None:
    description = describe(tmp_path / "model", TAME)
    with pytest.raises(UnsupportedModel, match="is nan"):
        precision_gate.PrecisionResult(float("nan"), 1).require(0.5, description, FAST)


def test_fp32_is_what_others_are_compared_with(
    chaotic: ModelDescription, ruined_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_gate, "measure_precision_loss", refuse_to_work)
    for plan in (EnginePlan("onnx"), EnginePlan("onnx", Precision.FP32)):
        load(chaotic, plan, ruined_cache)


def test_a_mill_serves_no_ruined_model(chaotic: ModelDescription, ruined_cache: Path) -> None:
    config = MillConfig(cache_dir=ruined_cache, precision=Precision.INT8_FAST)
    with pytest.raises(UnsupportedModel, match="Choose --precision fp32"):
        SyncMill(chaotic.directory, config)


def test_every_start_logs_the_cosine_that_was_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    description = describe(tmp_path / "model", TAME)
    told = []
    for _ in range(2):
        caplog.clear()
        with caplog.at_level("INFO", "vecmill.verification"):
            load(description, FAST, tmp_path / "cache")
        told.append(
            [line for line in caplog.messages if "the lowest cosine with fp32 over 40 texts was" in line]
        )
    assert told[0] == told[1]
    assert len(told[0]) == 1


def test_what_was_measured_is_listed_without_reading_the_weights(
    chaotic: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, other, cache = describe(tmp_path / "model", TAME), chaotic, tmp_path / "cache"
    assert precision_gate.list_checks(description, cache_dir=cache) == []
    with monkeypatch.context() as patched:
        patched.setattr("vecmill.models.digests.SETTLED_S", -math.inf)  # as if it was written long ago
        fingerprint_model(description, cache)
    monkeypatch.setattr("vecmill.models.digests.SETTLED_S", math.inf)
    plans = [FAST, EnginePlan("onnx", Precision.INT8), EnginePlan("openvino", Precision.BF16, "gpu:1")]
    for number, plan in enumerate(plans):
        for model in (description, other):
            file = cache / precision_gate._file_name(model, plan, cache)
            PrecisionResult(0.99 + number / 1_000, 200).write(file)
    damaged = precision_gate._file_name(description, EnginePlan("torch", Precision.FP16), cache)
    (cache / damaged).write_text("{")
    _hash_content.cache_clear()
    monkeypatch.setattr("vecmill.models.fingerprint._read_hash", read_if_small)
    found = precision_gate.list_checks(description, cache_dir=cache)
    assert [(each.engine, each.precision, each.device) for each in found] == [
        ("onnx", "int8", "any"),
        ("onnx", "int8-fast", "any"),
        ("openvino", "bf16", "gpu-1"),
    ]
    assert [each.result.worst_cosine for each in found] == [0.991, 0.99, 0.992]
    assert found[0].min_cosine == precision_gate.MIN_COSINES[Precision.INT8]
    assert precision_gate.list_checks(other, cache_dir=cache) == []  # its digest was not kept


def read_if_small(path: Path) -> str:
    """Hash a file, unless it has weights."""
    assert path.suffix != ".safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()
