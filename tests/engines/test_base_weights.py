"""Adapters over one base: the prepared weights that they do not change are one file, in memory once."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from support.lora_adapters import Lora, write_config
from support.published import edit_json
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.prepared import PREPARED_FILE
from vecmill.graphs.shared_weights import BASE_WEIGHTS
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray

ENGINES = {"onnx": "model.weights", "openvino": "model.onnx.weights"}
TEXTS = ["a text", "another text of more words", "ships"]
RANK = 3


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """A base, most of which is the table of its vocabulary, an adapter of one layer, and one of all."""
    base = save_tiny_bert(tmp_path / "base", TinyBert(config={"num_hidden_layers": 1}))
    one = save_adapter(tmp_path / "one", base, r"layer\.0\.attention\.self\.value", 1)
    return [base, one, save_adapter(tmp_path / "all", base, r"layer\.\d\..*(query|value|dense)", 2)]


def save_adapter(folder: Path, base: Path, modules: str, seed: int) -> Path:
    chance = np.random.default_rng(seed)
    tensors: dict[str, FloatArray] = {}
    for name, weight in safetensors.numpy.load_file(base / "model.safetensors").items():
        if re.search(rf"{modules}\.weight$", name):
            stem, (rows, columns) = f"base_model.model.{name.removesuffix('.weight')}", weight.shape
            tensors[f"{stem}.lora_A.weight"] = chance.standard_normal((RANK, columns)).astype(np.float32)
            tensors[f"{stem}.lora_B.weight"] = chance.standard_normal((rows, RANK)).astype(np.float32)
    assert tensors
    folder.mkdir()
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(write_config(Lora((), rank=RANK), str(base))))
    return folder


def embed(model: Path, engine: str, cache_dir: Path) -> FloatArray:
    with SyncMill(model, MillConfig(engine=engine, cores=1, cache_dir=cache_dir)) as mill:
        found: FloatArray = mill.embed(TEXTS)
        return found


def prepare(models: Sequence[Path], engine: str, cache_dir: Path) -> list[Path]:
    """Load the models in turn; return the folder that each has made, which may be that of an earlier one."""
    folders: list[Path] = []
    for model in models:
        before = set(cache_dir.glob(f"*/{PREPARED_FILE}"))
        load_engine(
            describe_model(locate_model(model)), MillConfig().plan(engine), cores=1, cache_dir=cache_dir
        ).close()
        folders += [path.parent for path in set(cache_dir.glob(f"*/{PREPARED_FILE}")) - before]
    return folders


def own_bytes(folder: Path, engine: str) -> int:
    return (folder / ENGINES[engine]).stat().st_size


def table_bytes(base: Path) -> int:
    tensors = safetensors.numpy.load_file(base / "model.safetensors")
    return int(tensors["embeddings.word_embeddings.weight"].nbytes)


@pytest.mark.promise("adapters-share")
@pytest.mark.parametrize("engine", ENGINES)
def test_adapters_have_only_what_they_change_on_disk(engine: str, models: list[Path], tmp_path: Path) -> None:
    base, one, every = prepare(models, engine, tmp_path / "cache")
    weights = ENGINES[engine]
    files = [base / weights, one / BASE_WEIGHTS, every / BASE_WEIGHTS]
    assert len({path.stat().st_ino for path in files}) == 1
    assert (
        own_bytes(one, engine) < own_bytes(every, engine) <= own_bytes(base, engine) - table_bytes(models[0])
    )


def test_a_table_of_16_bits_is_shared_too(tmp_path: Path) -> None:
    base = save_tiny_bert(tmp_path / "base", TinyBert(dtype="float16"))
    adapter = save_adapter(tmp_path / "one", base, r"layer\.0\.attention\.self\.value", 1)
    whole, one = prepare([base, adapter], "onnx", tmp_path / "cache")
    assert own_bytes(one, "onnx") <= own_bytes(whole, "onnx") - table_bytes(base)


@pytest.mark.linux
@pytest.mark.promise("adapters-share")
def test_all_models_of_a_process_map_the_same_file(models: list[Path], tmp_path: Path) -> None:
    """The kernel keeps the pages of a file once, however many sessions map them."""
    plan = MillConfig().plan("onnx")
    engines = [
        load_engine(describe_model(locate_model(model)), plan, cores=1, cache_dir=tmp_path / "cache")
        for model in models
    ]
    inode = next((tmp_path / "cache").glob(f"*/{BASE_WEIGHTS}")).stat().st_ino
    mapped = [line.split() for line in Path("/proc/self/maps").read_text("ascii").splitlines()]
    paths = {fields[5] for fields in mapped if fields[4] == str(inode)}
    assert len(paths) == len(models)  # by the base's name and by that of each adapter
    for found in engines:
        found.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_adapters_answer_as_if_they_shared_nothing(
    engine: str, models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they are loaded before their base."""
    shared = {number: embed(models[number], engine, tmp_path / "cache") for number in (2, 1, 0)}
    assert len(list((tmp_path / "cache").glob(f"*/{BASE_WEIGHTS}"))) == 2
    monkeypatch.setattr(os, "link", refuse_links)
    for number, model in enumerate(models):
        np.testing.assert_array_equal(embed(model, engine, tmp_path / "whole"), shared[number])
    assert not list((tmp_path / "whole").glob(f"*/{BASE_WEIGHTS}"))
    assert np.abs(shared[1] - shared[0]).max() > 0.01
    assert np.abs(shared[2] - shared[0]).max() > 0.01


def refuse_links(_from: Path, _to: Path) -> None:
    """As file systems without hard links do."""
    raise PermissionError


def test_an_adapter_outlives_the_folder_of_its_base(models: list[Path], tmp_path: Path) -> None:
    base, one, _ = prepare(models, "onnx", tmp_path / "cache")
    before = embed(models[1], "onnx", tmp_path / "cache")
    for path in base.iterdir():
        path.unlink()
    base.rmdir()
    np.testing.assert_array_equal(embed(models[1], "onnx", tmp_path / "cache"), before)
    assert not base.exists()  # nothing was prepared again
    assert one.exists()


def damage_the_weights_of_the_base(base: Path, one: Path) -> None:
    path = base / ENGINES["onnx"]
    path.chmod(0o644)
    path.write_bytes(bytes(path.stat().st_size))


def remove_the_link(base: Path, one: Path) -> None:
    (one / BASE_WEIGHTS).unlink()


@pytest.mark.parametrize("damage", [damage_the_weights_of_the_base, remove_the_link])
def test_damage_of_what_is_shared_is_found_and_mended(
    damage: Callable[[Path, Path], None], models: list[Path], tmp_path: Path
) -> None:
    """As root may do with `cp`."""
    cache = tmp_path / "cache"
    base, one, _ = prepare(models, "onnx", cache)
    before = [embed(model, "onnx", cache) for model in models]
    damage(base, one)
    for model, expected in zip(reversed(models), reversed(before), strict=True):
        np.testing.assert_array_equal(embed(model, "onnx", cache), expected)
    assert (one / BASE_WEIGHTS).stat().st_ino == (base / ENGINES["onnx"]).stat().st_ino


def test_another_adapter_of_the_name_is_prepared_anew(models: list[Path], tmp_path: Path) -> None:
    before = embed(models[1], "onnx", tmp_path / "cache")
    edit_json(models[1] / "adapter_config.json", lora_alpha=1)
    assert np.abs(embed(models[1], "onnx", tmp_path / "cache") - before).max() > 0.01


def test_a_base_that_is_no_model_alone_still_lends_its_weights(models: list[Path], tmp_path: Path) -> None:
    """A base of the adapter's own layout may have no tokenizer: its directory is that of the weights."""
    base, one, _ = models
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (base / name).rename(one / name)
    (one / "modules.json").write_text((base / "modules.json").read_text())
    (base / "modules.json").unlink()
    for path in base.glob("*_*/config.json"):
        (one / path.parent.name).mkdir()
        path.rename(one / path.parent.name / path.name)
    embed(one, "onnx", tmp_path / "cache")
    assert list((tmp_path / "cache").glob(f"*/{BASE_WEIGHTS}"))
