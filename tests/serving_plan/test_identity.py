"""The space of a model changes with whatever changes what its vectors mean, and with nothing else."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import safetensors.numpy

from support.bge_m3 import save_bge_m3, save_heads
from support.changed_models import (
    QUERY,
    WEIGHTS,
    Change,
    add_to,
    add_token,
    drop_module,
    edit,
    edit_tensors,
    edit_tokenizer,
    rename_tensors,
    save_table_router,
    save_whole_adapter,
    save_whole_model,
    split_shards,
    swap_tokens,
)
from support.exported_models import export_graph
from support.pytorch_files import save_with_torch
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import Mill, MillConfig
from vecmill.commands.optimize.output_directory import copy_model
from vecmill.directory_layouts import describe_model
from vecmill.engines import find_engine
from vecmill.models import ModelDescription, fingerprint, locate_model
from vecmill.models.digests import FOLDER
from vecmill.models.space import ModelIdentity
from vecmill.serving_plan import identity, space_tensors
from vecmill.serving_plan.identity import describe_computation, identify_space
from vecmill.values.engine_plan import EngineInfo, Precision

pytestmark = pytest.mark.promise("space-identifies")


def describe(folder: Path) -> ModelDescription:
    return describe_model(locate_model(folder))


def space_of(folder: Path) -> str:
    return identify_space(describe(folder)).digest


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_whole_model(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture(scope="module")
def space(whole: Path) -> str:
    """The space of the model as it is."""
    return space_of(whole)


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be changed."""
    return shutil.copytree(whole, tmp_path / "model")


PROMPTS = {"query": "ask: ", "document": "read: ", "own": "own: "}
SENTENCE = "config_sentence_transformers.json"
MATRIX = f"{QUERY}.weight"
KEYS = MATRIX.replace("query", "key")

CHANGES: dict[str, Change] = {
    "a weight": add_to(MATRIX, (3, 5)),
    "a weight of the table of tokens": add_to("embeddings.word_embeddings.weight", (9, 0)),
    "a matrix transposed": edit_tensors(
        lambda tensors: {**tensors, f"{QUERY}.weight": tensors[f"{QUERY}.weight"].T}
    ),
    "two tensors exchanged": edit_tensors(
        lambda tensors: tensors | {MATRIX: tensors[KEYS], KEYS: tensors[MATRIX]}
    ),
    "a token added": edit_tokenizer(add_token),
    "two tokens exchanged": edit_tokenizer(swap_tokens),
    "lower-casing": edit("tokenizer_config.json", do_lower_case=False),
    "pooling": edit("1_Pooling/config.json", pooling_mode_cls_token=True, pooling_mode_mean_tokens=False),
    "pooling without the prompt": edit("1_Pooling/config.json", include_prompt=False),
    "normalisation": drop_module("Normalize"),
    "a prompt of the table": edit(SENTENCE, prompts={**PROMPTS, "query": "Ask: "}),
    "a prompt added": edit(SENTENCE, prompts={**PROMPTS, "other": "other: "}),
    "the default prompt": edit(SENTENCE, default_prompt_name="query"),
    "a weight of the matrix": add_to("linear.weight", (2, 2), f"2_Dense/{WEIGHTS}"),
    "the activation of the matrix": edit(
        "2_Dense/config.json", activation_function="torch.nn.modules.linear.Identity"
    ),
    "a weight of the layer normalisation": add_to("norm.bias", (1,), f"3_LayerNorm/{WEIGHTS}"),
    "a module removed": drop_module("LayerNorm"),
    "the dimensions": edit(SENTENCE, truncate_dim=8),
    "the epsilon": edit("config.json", layer_norm_eps=1e-6),
    "the number of heads": edit("config.json", num_attention_heads=8),
    "the number of layers": edit("config.json", num_hidden_layers=1),
    "the activation": edit("config.json", hidden_act="relu"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_makes_another_space(space: str, folder: Path, change: Change) -> None:
    change(folder)
    assert space_of(folder) != space


def as_pickle(folder: Path) -> None:
    import torch

    tensors = {
        key: torch.from_numpy(one) for key, one in safetensors.numpy.load_file(folder / WEIGHTS).items()
    }
    save_with_torch(folder / "pytorch_model.bin", tensors)
    (folder / WEIGHTS).unlink()


def forget_padding(document: dict[str, object]) -> None:
    document["padding"] = document["truncation"] = None


SAME: dict[str, Change] = {
    "a pickle": as_pickle,
    "several files": split_shards,
    "old names, a prefix and an unused tensor": edit_tensors(rename_tensors),
    "64 bits": edit_tensors(lambda tensors: {key: one.astype(np.float64) for key, one in tensors.items()}),
    "white space of the tokenizer": edit_tokenizer(lambda document: None),
    "padding and truncation of the tokenizer": edit_tokenizer(forget_padding),
    "the longest input": edit("sentence_bert_config.json", max_seq_length=24),
    "the version of transformers": edit("config.json", transformers_version="9.9.9", torch_dtype="float16"),
    "the order of the prompts": edit(SENTENCE, prompts=dict(reversed(PROMPTS.items()))),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_what_changes_no_vector_keeps_the_space(space: str, folder: Path, change: Change) -> None:
    change(folder)
    assert space_of(folder) == space


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
def test_equal_values_of_fewer_bits_are_the_same_space(folder: Path, tmp_path: Path, kind: type) -> None:
    rounded = shutil.copytree(folder, tmp_path / "rounded")
    narrow = edit_tensors(lambda tensors: {key: one.astype(kind) for key, one in tensors.items()})
    narrow(folder)
    narrow(rounded)
    edit_tensors(lambda tensors: {key: one.astype(np.float32) for key, one in tensors.items()})(rounded)
    assert space_of(folder) == space_of(rounded)


def test_neither_a_version_of_the_graphs_nor_a_name_makes_another_space(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = space_of(whole)
    for module in (fingerprint, identity):
        monkeypatch.setattr(module, "GRAPH_VERSION", 99)
    assert identify_space(replace(describe(whole), name="another")).digest == before


def test_an_adapter_and_its_scaling_make_other_spaces(whole: Path, tmp_path: Path) -> None:
    adapters = [save_whole_adapter(tmp_path / f"by {alpha}", whole, alpha=alpha) for alpha in (7, 8)]
    changed = shutil.copytree(adapters[0], tmp_path / "changed")
    add_to(f"base_model.model.{QUERY}.lora_A.weight", (0, 0), "adapter_model.safetensors")(changed)
    assert len({space_of(whole), space_of(changed), *map(space_of, adapters)}) == 4
    same = shutil.copytree(adapters[0], tmp_path / "same")
    assert space_of(same) == space_of(adapters[0])


def test_the_table_of_queries_makes_another_space_of_queries_and_documents(tmp_path: Path) -> None:
    folder = save_table_router(tmp_path / "router")
    before = space_of(folder)
    add_to("embedding.weight", (4, 4), f"query_0/{WEIGHTS}")(folder)
    assert space_of(folder) != before


def test_both_layouts_of_a_static_table_are_the_same_space(tmp_path: Path) -> None:
    plain = save_table_router(tmp_path / "router") / "query_0"
    config = {"modules.json": [{"path": "", "type": "sentence_transformers.models.StaticEmbedding"}]}
    for name, document in config.items():
        (plain / name).write_text(json.dumps(document))
    other = shutil.copytree(plain, tmp_path / "other")

    def share_rows(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        table = tensors["embedding.weight"]
        return {"embeddings": table[::-1], "mapping": np.arange(len(table))[::-1].astype(np.int64)}

    edit_tensors(share_rows)(other)
    assert space_of(other) == space_of(plain)


async def test_the_embedded_model_has_the_space_that_was_published() -> None:
    """Fails if a release gives a model another digest: then the number of the scheme must be incremented."""
    async with Mill() as mill:
        assert mill.space == "s1-92b907ffb7b9f3ee36c1fdfe3ccc74cd"


async def test_two_engines_serve_one_space_and_compute_it_in_two_ways(whole: Path, tmp_path: Path) -> None:
    offered = find_engine("openvino").find_capabilities().devices["cpu"]
    precision = Precision.BF16 if Precision.BF16 in offered else Precision.FP32
    configs = (
        MillConfig(engine="onnx", precision=Precision.FP32, cache_dir=tmp_path),
        MillConfig(engine="openvino", precision=precision, cache_dir=tmp_path),
    )
    spaces, exacts = set(), set()
    for config in configs:
        async with Mill(whole, config) as mill:
            spaces.add(mill.space)
            exacts.add(mill.exact)
    assert spaces == {space_of(whole)}
    assert len(exacts) == 2


@pytest.mark.parametrize(
    "change", [{"precision": "bf16"}, {"device": "cuda:0"}, {"name": "torch"}, {"max_tokens": 99}], ids=str
)
def test_each_change_of_the_computation_makes_another_exact_space(
    whole: Path, change: dict[str, Any]
) -> None:
    space, info = identify_space(describe(whole)), EngineInfo("onnx", "fp32", "cpu", 16, 48, (1,))
    before, after = (
        ModelIdentity.of(space, describe_computation(one, keeps_end=False))
        for one in (info, replace(info, **change))
    )
    assert before.space == after.space
    assert before.exact != after.exact


def test_the_number_of_the_device_is_no_part_of_the_exact_space() -> None:
    first, second = (
        describe_computation(EngineInfo("torch", "fp32", device, 16, 48, (1,)), keeps_end=False)
        for device in ("cuda:0", "cuda:1")
    )
    assert first == second


async def test_the_longest_input_is_part_of_the_exact_space_alone(
    folder: Path, whole: Path, tmp_path: Path
) -> None:
    edit("sentence_bert_config.json", max_seq_length=24)(folder)
    config = MillConfig(cache_dir=tmp_path / "cache")
    async with Mill(whole, config) as one, Mill(folder, config) as other:
        assert one.space == other.space
        assert one.exact != other.exact


def test_a_later_start_reads_no_tensor(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description = describe(whole)
    found = identify_space(description, tmp_path, clock=lambda: time.time() + 3600)
    monkeypatch.setattr(space_tensors, "list_tensor_parts", None)
    assert identify_space(description, tmp_path) == found


def test_a_file_that_changed_is_read_again(folder: Path, tmp_path: Path) -> None:
    later = lambda: time.time() + 3600  # noqa: E731
    before = identify_space(describe(folder), tmp_path, clock=later)
    add_to("linear.weight", (2, 2), f"2_Dense/{WEIGHTS}")(folder)
    assert identify_space(describe(folder), tmp_path, clock=later).digest != before.digest


def test_the_space_of_files_that_changed_a_moment_ago_is_not_kept(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").touch()
    identify_space(describe(folder), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"parts": [["a", 1, ""]], "heads": []}', b"[" * 5000])
def test_a_damaged_kept_space_is_found_again(whole: Path, tmp_path: Path, content: bytes) -> None:
    later = lambda: time.time() + 3600  # noqa: E731
    found = identify_space(describe(whole), tmp_path, clock=later)
    [kept] = (tmp_path / FOLDER).iterdir()
    kept.write_bytes(content)
    assert identify_space(describe(whole), tmp_path, clock=later) == found


def test_each_part_of_a_space_is_named_once(whole: Path) -> None:
    names = [part.name for part in identify_space(describe(whole)).parts]
    assert sorted(names) == sorted(set(names))
    assert {"tensors", "tokenizer", "architecture", "pooling", "normalisation", "modules", "prompts"} <= set(
        names
    )


def test_the_heads_of_bge_m3_change_their_own_spaces_alone(tmp_path: Path) -> None:
    folder = save_bge_m3(tmp_path / "m3", seed=3)
    before = identify_space(describe(folder))
    save_heads(folder, seed=9)
    after = identify_space(describe(folder))
    assert before.digest == after.digest
    changed = {one.name for one, other in zip(before.heads, after.heads, strict=True) if one != other}
    assert changed == {"sparse", "vectors"}


def change_weight(graph: onnx.GraphProto) -> None:
    tensor = next(one for one in graph.initializer if one.name.endswith("word_embeddings.weight"))
    values = onnx.numpy_helper.to_array(tensor).copy()
    values[3, 3] = np.nextafter(values[3, 3], np.float32(np.inf))
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def change_operator(graph: onnx.GraphProto) -> None:
    next(node for node in graph.node if node.op_type == "Erf").op_type = "Tanh"


def test_an_exported_graph_has_the_space_of_its_operators_and_values(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path / "model", TinyBert())
    export_graph(folder, folder / "onnx/model.onnx", "BertModel")
    (folder / WEIGHTS).unlink()
    before = space_of(folder)
    path = folder / "onnx/model.onnx"
    model = onnx.load(path)
    model.producer_name, model.doc_string = "another exporter", "a comment"
    onnx.save(model, path, save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    assert space_of(folder) == before
    spaces = {before}
    for change in (change_weight, change_operator):
        model = onnx.load(path)
        change(model.graph)
        onnx.save(model, path)
        spaces.add(space_of(folder))
    assert len(spaces) == 3


def test_a_directory_of_vecmill_optimize_has_the_space_of_its_model(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "optimised"
    copy.mkdir()
    copy_model(describe(whole), copy)
    (copy / "prepared").mkdir()
    assert space_of(copy) == space_of(whole)


def test_the_models_of_one_process_with_the_same_name_are_told_apart(whole: Path, tmp_path: Path) -> None:
    """The kept spaces are found by what was read, not by the name of the model."""
    other = save_tiny_bert(tmp_path / "model", TinyBert(seed=5))
    later = lambda: time.time() + 3600  # noqa: E731
    spaces = {identify_space(describe(one), tmp_path, clock=later).digest for one in (whole, other)}
    assert len(spaces) == 2
