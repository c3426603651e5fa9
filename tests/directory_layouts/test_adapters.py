"""Adapter directories that are wrong, hostile or unsupported: each is refused by a sentence that names it."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from click.testing import CliRunner

from support.fake_hub import Repository, point_client_at, run_fake_hub
from support.lora_adapters import Lora, change_tensors, write_config
from support.published import edit_json
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import MillConfig
from vecmill.commands.main import main
from vecmill.commands.optimize.run import OptimizeOptions, collect_context
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.errors import CorruptModel, ModelNotFound, UnsupportedModel
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.values.aliases import FloatArray

Spoil = Callable[[Path], None]
QUERY = "base_model.model.encoder.layer.0.attention.self.query"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
WIDTH, RANK = 32, 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adapter of one matrix, beside its base."""
    save_tiny_bert(tmp_path / "base", TinyBert())
    return save(tmp_path / "adapter", str(tmp_path / "base"))


def save(folder: Path, base: str) -> Path:
    random = np.random.default_rng(0)
    tensors = {
        f"{QUERY}.lora_A.weight": random.standard_normal((RANK, WIDTH)).astype(np.float32),
        f"{QUERY}.lora_B.weight": random.standard_normal((WIDTH, RANK)).astype(np.float32),
    }
    folder.mkdir()
    safetensors.numpy.save_file(tensors, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(write_config(Lora(("query",), rank=RANK), base)))
    return folder


def describe(folder: Path) -> ModelDescription:
    return describe_model(locate_model(folder))


def put(**values: Any) -> Spoil:
    return lambda folder: edit_json(folder / CONFIG, **values)


def tensors(change: Callable[[dict[str, FloatArray]], dict[str, FloatArray]]) -> Spoil:
    return lambda folder: change_tensors(folder, change)


def renamed(old: str, new: str) -> Spoil:
    return tensors(lambda found: {name.replace(old, new): one for name, one in found.items()})


def add(name: str, *shape: int) -> Spoil:
    return tensors(lambda found: {**found, name: np.ones(shape, np.float32)})


def all_of(*spoils: Spoil) -> Spoil:
    def spoil(folder: Path) -> None:
        for each in spoils:
            each(folder)

    return spoil


def write_a_list(folder: Path) -> None:
    (folder / CONFIG).write_text("[]")


def truncate(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-8])


def lead_out(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder.parent / "elsewhere.safetensors")
    (folder / WEIGHTS).symlink_to(folder.parent / "elsewhere.safetensors")


def name_itself(folder: Path) -> None:
    put(base_model_name_or_path=str(folder))(folder)


def name_an_adapter(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "other")
    put(base_model_name_or_path=str(folder.parent / "other"))(folder)


def name_a_sentence_directory_with_an_adapter(folder: Path) -> None:
    for name in (CONFIG, WEIGHTS):
        shutil.copy(folder / name, folder.parent / "base")


def name_a_file(folder: Path) -> None:
    put(base_model_name_or_path=str(folder.parent / "base/config.json"))(folder)


WRONG: dict[str, tuple[Spoil, str]] = {
    "kind": (put(peft_type="IA3"), "peft_type 'IA3' is not supported; supported: LORA"),
    "no_kind": (put(peft_type=None), "peft_type None is not supported"),
    "dora": (put(use_dora=True), "use_dora True is not supported"),
    "bias": (put(bias="some"), "bias 'some' is not supported"),
    "bias_of_lora": (put(lora_bias=True), "lora_bias True is not supported"),
    "initial": (put(init_lora_weights="pissa_niter_4"), "init_lora_weights 'pissa_niter_4' is not supported"),
    "initial_list": (put(init_lora_weights=[1]), "init_lora_weights .* is not supported"),
    "replication": (put(layer_replication=[[0, 2]]), "layer_replication .* is not supported"),
    "tokens": (put(trainable_token_indices=[1]), "trainable_token_indices .* is not supported"),
    "later": (put(use_what_comes_next={"a": 1}), "use_what_comes_next .* is not supported"),
    "rank_of_zero": (put(r=0), "r must be a whole number of at least 1"),
    "huge_rank": (put(r=10**12), "r must be a whole number of at most"),
    "no_rank": (put(r="many"), "r must be a whole number"),
    "other_rank": (put(r=4), "gives the rank 4"),
    "rank_of_pattern": (put(rank_pattern={"query": 5}), "gives the rank 5"),
    "alpha": (put(lora_alpha=-1), "lora_alpha must be a number above 0"),
    "alpha_text": (put(lora_alpha="2"), "lora_alpha must be a number above 0"),
    "infinite_alpha": (put(lora_alpha=math.inf), "lora_alpha must be a number"),
    "patterns": (put(alpha_pattern=[1]), "alpha_pattern must be an object"),
    "slow_pattern": (put(alpha_pattern={"(a+)+$": 1}), "alpha_pattern has the pattern '(a+)+$'"),
    "many_patterns": (
        put(rank_pattern={f"layer.{number}": 3 for number in range(5_000)}),
        "rank_pattern has 5000 patterns; at most 4096 are read",
    ),
    "flag": (put(use_rslora="yes"), "use_rslora must be true or false"),
    "saved": (put(modules_to_save="classifier"), "modules_to_save must be a list of strings"),
    "no_object": (write_a_list, "must hold a JSON object"),
    "no_weights": (lambda folder: (folder / WEIGHTS).unlink(), "adapter_model.safetensors is missing"),
    "truncated": (truncate, "is not a complete safetensors file"),
    "leads_out": (lead_out, "leads out of the model directory"),
    "empty": (tensors(lambda found: {}), "has no tensors"),
    "no_partner": (
        tensors(lambda found: dict(list(found.items())[:1])),
        "has no tensor .*, but its counterpart",
    ),
    "other_layer": (renamed("layer.0", "layer.7"), "adapts the module 'encoder.layer.7.*does not have"),
    "other_model": (renamed("encoder.layer", "layers"), "adapts the module .*does not have"),
    "norm": (renamed("attention.self.query", "attention.output.LayerNorm"), r"has the shape \(32,\)"),
    "shape": (tensors(lambda found: {name: one[:, :-1] for name, one in found.items()}), "of the shapes"),
    "twice": (
        tensors(
            lambda found: (
                found | {name.replace("encoder", "bert.encoder"): one for name, one in found.items()}
            )
        ),
        "adapts the tensor 'encoder.layer.0.attention.self.query.weight' of the base twice",
    ),
    "magnitude": (
        add(f"{QUERY}.lora_magnitude_vector", WIDTH),
        "lora_magnitude_vector', which the base does not",
    ),
    "head": (
        add("base_model.model.classifier.weight", 1, WIDTH),
        "'classifier.weight', which the base does not",
    ),
    "head_of_no_task": (
        all_of(put(modules_to_save=["classifier"]), add("base_model.model.classifier.weight", 1, WIDTH)),
        "task_type in adapter_config.json is SEQ_CLS or TOKEN_CLS",
    ),
    "no_labels": (
        all_of(
            put(modules_to_save=["classifier"], task_type="SEQ_CLS"),
            add("base_model.model.classifier.weight", 0, WIDTH),
        ),
        "classifier.weight' has no rows",
    ),
    "no_vocabulary": (
        add("base_model.model.embeddings.word_embeddings.weight", 0, WIDTH),
        "word_embeddings.weight' has no rows",
    ),
    "task_number": (put(task_type=7), "task_type must be a string"),
    "mapping": (put(task_type=None, auto_mapping=[1]), "auto_mapping must be an object"),
    "same_name": (
        tensors(
            lambda found: found | {name.removeprefix("base_model.model."): found[name] for name in found}
        ),
        "lora_.*' twice",
    ),
    "saved_twice": (
        all_of(
            add("base_model.model.embeddings.LayerNorm.bias", WIDTH),
            add("base_model.model.bert.embeddings.LayerNorm.bias", WIDTH),
        ),
        "has the tensor 'embeddings.LayerNorm.bias' of the base twice",
    ),
    "integers": (
        tensors(lambda found: {name: one.astype(np.int64) for name, one in found.items()}),
        "holds I64; supported are",
    ),
    "no_base": (put(base_model_name_or_path=None), "base_model_name_or_path must name the base"),
    "base_number": (put(base_model_name_or_path=3), "base_model_name_or_path must be a string"),
    "base_nul": (put(base_model_name_or_path="/a\0b"), "which does not exist"),
    "base_missing": (put(base_model_name_or_path="/nowhere/base"), "'/nowhere/base', which does not exist"),
    "base_file": (name_a_file, "is a file"),
    "base_relative": (put(base_model_name_or_path="../base"), "neither the absolute path"),
    "base_address": (put(base_model_name_or_path="https://example.org/a/b"), "neither the absolute path"),
    "base_home": (put(base_model_name_or_path="~/base"), "neither the absolute path"),
    "base_is_itself": (name_itself, "has an adapter itself, which is not supported"),
    "base_is_an_adapter": (name_an_adapter, "has an adapter itself, which is not supported"),
    "base_has_an_adapter": (
        name_a_sentence_directory_with_an_adapter,
        "has an adapter itself, which is not supported",
    ),
    "revision": (put(revision=7), "revision must be a string"),
}


@pytest.mark.promise("model-directories")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_adapter_is_refused_by_a_sentence_that_names_it(name: str, folder: Path) -> None:
    spoil, words = WRONG[name]
    assert describe(folder).adapter is not None
    spoil(folder)
    pattern = words if ".*" in words or "\\" in words else words.replace("(", r"\(").replace(")", r"\)")
    pattern = pattern.replace("+", r"\+").replace("$", r"\$")
    with pytest.raises((CorruptModel, UnsupportedModel, ModelNotFound), match=pattern) as caught:
        describe(folder)
    assert caught.value.message.isprintable()
    assert str(folder) in caught.value.message or "base" in caught.value.message


def test_a_base_that_needs_its_own_code_is_refused_although_the_adapter_is_trusted(folder: Path) -> None:
    edit_json(folder.parent / "base/config.json", auto_map={"AutoModel": "own.Model"}, model_type="own")
    with pytest.raises(UnsupportedModel, match="needs its own code, which is not run for an adapter"):
        describe_model(locate_model(folder, trusts_code=True))


def test_a_base_without_a_graph_is_refused(folder: Path) -> None:
    edit_json(folder.parent / "base/config.json", model_type="roformer", embedding_size=WIDTH)
    with pytest.raises(UnsupportedModel, match="a model_type of which vecmill has a graph"):
        describe(folder)


def test_pytorch_weights_of_an_adapter_are_read(folder: Path) -> None:
    """peft saved them until 0.6. A pickle that names anything but tensors is refused, as that of a model."""
    import torch

    found = {
        name: torch.from_numpy(one) for name, one in safetensors.numpy.load_file(folder / WEIGHTS).items()
    }
    (folder / WEIGHTS).unlink()
    torch.save(found, folder / "adapter_model.bin")
    adapter = describe(folder).adapter
    assert adapter is not None
    assert adapter.weights_file.name == "adapter_model.bin"
    torch.save({**found, "more": Path("a")}, folder / "adapter_model.bin")
    with pytest.raises(UnsupportedModel, match=r"adapter_model\.bin.*pathlib"):
        describe(folder)


def test_a_tokenizer_beside_an_adapter_replaces_that_of_the_base(folder: Path) -> None:
    """As in sentence-transformers; training saves it there if it has added tokens. Half of one does not."""
    base = folder.parent / "base"
    assert describe(folder).tokenizer_file.parent == base
    shutil.copy(base / "tokenizer.json", folder)
    assert describe(folder).tokenizer_file.parent == base
    shutil.copy(base / "tokenizer_config.json", folder)
    edit_json(folder / "tokenizer_config.json", truncation_side="left")
    description = describe(folder)
    assert description.tokenizer_file.parent == folder
    assert description.truncate_left
    assert description.stages == describe(base).stages


def test_an_adapter_with_a_head_is_for_the_encoder_without_its_modules(folder: Path) -> None:
    """Its base may be an embedding model, whose pooling and normalisation are not before a head."""
    all_of(
        put(modules_to_save=["classifier"], task_type="SEQ_CLS"),
        add("base_model.model.classifier.weight", 1, WIDTH),
        add("base_model.model.classifier.bias", 1),
    )(folder)
    description = describe(folder)
    assert (description.task, description.stages, description.dim) == (Task.RERANK, (), 1)
    asked = describe_model(locate_model(folder), Task.EMBED)
    assert asked.task is Task.EMBED


def test_the_base_is_not_looked_for_in_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`owner/name` is a model of a hub, whatever folders are there."""
    save_tiny_bert(folder.parent / "owner/name", TinyBert())
    monkeypatch.chdir(folder.parent)
    put(base_model_name_or_path="owner/name")(folder)
    with pytest.raises(ModelNotFound, match=r"run `vecmill pull owner/name` first"):
        describe(folder)


def test_a_downloaded_adapter_names_no_directory_of_the_machine(folder: Path) -> None:
    downloaded = folder.parent / "models--owner--adapter/snapshots/0123"
    shutil.copytree(folder, downloaded)
    with pytest.raises(ModelNotFound, match="is from a hub, but names the directory"):
        describe(downloaded)


def test_tensors_are_merged_one_at_a_time_when_they_are_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Describing a model reads no tensor of the base or the adapter."""
    from vecmill.models import merged_weights

    read: list[FloatArray] = []

    def note(view: Any) -> FloatArray:
        read.append(np.asarray(view[:], np.float32))
        return read[-1]

    monkeypatch.setattr(merged_weights, "_read", note)
    description = describe(folder)
    assert read == []
    load_engine(description, MillConfig().plan("onnx"), cores=1, cache_dir=tmp_path / "cache").close()
    assert len(read) >= 2


def test_an_adapter_is_not_optimised(folder: Path) -> None:
    options = OptimizeOptions(model=str(folder), directory=folder.parent / "optimized")
    with pytest.raises(UnsupportedModel, match="an adapter cannot be optimised"):
        collect_context(options)


@pytest.fixture
def hub_files(tmp_path: Path) -> dict[str, dict[str, bytes]]:
    def read(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }

    base, adapter = save_tiny_bert(tmp_path / "base", TinyBert()), save(tmp_path / "adapter", "owner/base")
    return {"owner/base": read(base), "owner/adapter": read(adapter)}


def test_a_base_of_a_hub_is_downloaded_only_when_asked_for(
    hub_files: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that names the base may be anybody's."""
    with run_fake_hub() as hub:
        hub.repositories |= {name: Repository(files) for name, files in hub_files.items()}
        point_client_at(hub, tmp_path / "cache", monkeypatch)
        for model in ("owner/adapter", str(tmp_path / "adapter")):
            refused = CliRunner().invoke(main, ["describe", model])
            assert refused.exit_code == 2
            assert "run `vecmill pull owner/base` first" in refused.stderr
        assert not [path for path, _ in hub.served if "owner/base" in path]
        assert CliRunner().invoke(main, ["pull", "owner/base"]).exit_code == 0
        for model in ("owner/adapter", str(tmp_path / "adapter")):
            described = CliRunner().invoke(main, ["describe", model])
            assert described.exit_code == 0, described.stderr
