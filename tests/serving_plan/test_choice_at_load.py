"""A directory that was optimised is served as was found best, unless a person says otherwise."""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.whole_models import ALL
from support.landscape import accuracy_of
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands.optimize.choice import Choice, Goal
from vecmill.commands.optimize.measurements import Measurements, Pass, Screening, Speed
from vecmill.commands.optimize.output_directory import OptimizationResult, describe_result, write_manifest
from vecmill.config import BatchConfig, MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import fingerprint, fingerprint_model, locate_model
from vecmill.models.location import MANIFEST_FILE
from vecmill.serving_plan.choice_at_load import apply_config, plan_model, plan_serving
from vecmill.serving_plan.manifest import PREPARED_FOLDER, Machine, Manifest, runtime_versions
from vecmill.values.engine_plan import EnginePlan, Precision

SAFE = EnginePlan("onnx", Precision.FP32, "cpu", (1, 2), None, 512)
FOUND = EnginePlan("openvino", Precision.BF16, "cpu", (2,), 8, 256)
SPEED = Speed(100.0, 0.01)


def result(machine: Machine | None = None) -> OptimizationResult:
    screenings = {
        SAFE: Screening(1.0, 200.0, accuracy_of(1.0)),
        FOUND: Screening(2.0, None, accuracy_of(0.9999)),
    }
    measured = Measurements(SAFE, screenings, [Pass(1, SPEED, SPEED, {FOUND: Speed(190.0, 0.006)})])
    return OptimizationResult(
        model="owner/name",
        model_fingerprint="0123",
        machine=machine or Machine.current(),
        versions=runtime_versions(["onnx", "openvino"]),
        goal=Goal(),
        measured=measured,
        choice=Choice(FOUND, "it is the best", 0.01),
        left_out={"torch": "not installed"},
        texts=500,
    )


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("name", ["model.safetensors", "2_Dense/model.safetensors"])
def test_a_file_of_weights_that_is_not_whole_is_refused_before_it_is_hashed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> str:
        raise AssertionError(f"{path} was read to its end")

    monkeypatch.setattr(fingerprint, "_read_hash", read)
    ALL["bert"](tmp_path / "model")
    description = describe_model(locate_model(tmp_path / "model"))
    os.truncate(tmp_path / "model" / name, 2**40)  # a hole, which takes no room
    with pytest.raises(CorruptModel, match=rf"{name} is not a complete safetensors file"):
        plan_model(description, MillConfig(cache_dir=tmp_path))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_manifest(result(), tmp_path)
    return tmp_path


def rewrite(directory: Path, change: Callable[[Any], object]) -> None:
    document = json.loads((directory / MANIFEST_FILE).read_text())
    change(document)
    (directory / MANIFEST_FILE).write_text(json.dumps(document))


def test_the_plan_that_was_found_is_followed(directory: Path) -> None:
    served = plan_serving(directory, MillConfig())
    assert served.plan == FOUND
    assert served.accuracy == accuracy_of(0.9999)


def test_a_directory_without_a_manifest_is_served_as_configured(tmp_path: Path) -> None:
    config = MillConfig(precision=Precision.INT8, cache_dir=tmp_path / "cache")
    served = plan_serving(tmp_path, config)
    assert (served.plan, served.cache_dir, served.accuracy) == (config.plan(), tmp_path / "cache", None)


@pytest.mark.parametrize(
    ("config", "plan"),
    [
        (MillConfig(), FOUND),
        (MillConfig(engine="openvino", precision=Precision.BF16), FOUND),
        (MillConfig(batch=BatchConfig(max_batch_tokens=64)), replace(FOUND, max_batch_tokens=64)),
        (MillConfig(engine="onnx"), EnginePlan("onnx")),
        (MillConfig(precision=Precision.FP32), EnginePlan("openvino", Precision.FP32, "cpu")),
        (MillConfig(device="gpu"), EnginePlan("openvino", Precision.BF16, "gpu")),
    ],
)
def test_what_a_person_says_goes_first(config: MillConfig, plan: EnginePlan) -> None:
    assert apply_config(FOUND, config) == plan


def test_accuracy_is_that_of_what_is_served_or_unknown(directory: Path) -> None:
    narrow = MillConfig(batch=BatchConfig(max_batch_tokens=64))
    assert plan_serving(directory, narrow).accuracy == accuracy_of(0.9999)
    assert plan_serving(directory, MillConfig(precision=Precision.INT8)).accuracy is None


def test_prepared_files_are_used_where_they_fit(directory: Path) -> None:
    config = MillConfig(cache_dir=directory / "cache")
    assert plan_serving(directory, config).cache_dir == directory / "cache"
    (directory / PREPARED_FOLDER).mkdir()
    assert plan_serving(directory, config).cache_dir == directory / PREPARED_FOLDER
    assert plan_serving(directory, replace(config, engine="onnx")).cache_dir == directory / "cache"
    rewrite(directory, lambda document: document["versions"].update(vecmill="0.0.0"))
    assert plan_serving(directory, config).cache_dir == directory / "cache"


def test_accuracy_is_not_said_of_other_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    description = describe_model(locate_model(save_tiny_bert(tmp_path / "model", TinyBert())))
    measured = replace(result(), model_fingerprint=fingerprint_model(description))
    write_manifest(measured, description.directory)
    assert plan_model(description, MillConfig()).accuracy == accuracy_of(0.9999)
    save_tiny_bert(description.directory, TinyBert(seed=1))
    with caplog.at_level(logging.WARNING):
        served = plan_model(description, MillConfig())
    assert (served.plan, served.accuracy) == (FOUND, None)
    assert "have changed since it was optimised" in caplog.text


def test_another_machine_is_a_warning_with_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "my model"
    directory.mkdir()
    write_manifest(result(replace(Machine.current(), cores=96)), directory)
    (directory / PREPARED_FOLDER).mkdir()
    with caplog.at_level(logging.WARNING):
        served = plan_serving(directory, MillConfig(cache_dir=tmp_path))
    assert (served.plan, served.cache_dir) == (FOUND, tmp_path)
    (record,) = caplog.records
    assert f"vecmill optimize '{directory}' -o" in record.getMessage()


def test_the_same_machine_is_no_warning(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan_serving(directory, MillConfig())
    assert not caplog.records


def test_the_model_keeps_its_name(directory: Path) -> None:
    assert locate_model(directory).name == "owner/name"


def test_a_manifest_of_another_release_is_named(directory: Path) -> None:
    rewrite(directory, lambda document: document.update(schema=99))
    with pytest.raises(UnsupportedModel, match=r"vecmill\.json: schema is 99"):
        Manifest.read(directory)


@pytest.mark.parametrize("schema", [0, 99, None, "1"])
def test_a_manifest_of_another_release_is_ignored_with_a_sentence(
    directory: Path, schema: object, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(directory, lambda document: document.update(schema=schema))
    with caplog.at_level(logging.WARNING):
        served = plan_serving(directory, MillConfig())
    assert (served.plan, served.accuracy) == (MillConfig().plan(), None)
    (warning,) = caplog.messages
    assert f"schema is {schema!r}" in warning
    assert "Optimise the model again. Until then the model is served as if" in warning


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"schema": 1}', b"[" * 100_000])
def test_a_torn_manifest_is_named(directory: Path, content: bytes) -> None:
    (directory / MANIFEST_FILE).write_bytes(content)
    with pytest.raises(CorruptModel, match=r"vecmill\.json"):
        plan_serving(directory, MillConfig())


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("plan"),
        lambda document: document.update(model=""),
        lambda document: document["plan"].update(precision="fp1"),
        lambda document: document["plan"].update(lane_widths=[0]),
        lambda document: document["plan"].update(lane_widths="12"),
        lambda document: document["plan"].update(max_batch_tokens=-1),
        lambda document: document["plan"].update(engine=1),
        lambda document: document["plan"].update(threads=4),
        lambda document: document["candidates"][0]["accuracy"].pop("texts"),
        lambda document: document.update(machine=None),
    ],
)
def test_a_broken_manifest_is_named(directory: Path, change: Callable[[Any], object]) -> None:
    rewrite(directory, change)
    with pytest.raises(CorruptModel, match=r"vecmill\.json"):
        Manifest.read(directory)


def test_the_manifest_has_every_figure() -> None:
    document = describe_result(result())
    (safe, found) = document["candidates"]
    assert safe["is_safe"]
    assert found["speed"] == {"texts_per_s": 190.0, "latency_s": pytest.approx(0.006)}
    assert found["ratios"] == [{"throughput": 1.9, "latency": pytest.approx(1 / 0.6)}]
    assert found["accuracy"]["cosine_min"] == 0.9999
    assert document["left_out"] == {"torch": "not installed"}
    json.dumps(document, allow_nan=False)
