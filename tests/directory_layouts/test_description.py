"""Settings are read as the reference reads them, and each broken directory gives one clear error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import ModelDescription, Normalize, Pooling, PoolingMode, Task, locate_model

Edit = Callable[[Any], Any]


def describe(directory: Path) -> ModelDescription:
    return describe_model(locate_model(directory))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_tiny_bert(tmp_path / "model", TinyBert())


def edit(directory: Path, name: str, change: Edit) -> None:
    document = json.loads((directory / name).read_text())
    (directory / name).write_text(json.dumps(change(document)))


def put(**values: Any) -> Edit:
    return lambda document: {**document, **values}


def test_the_embedded_model() -> None:
    description = describe_model(locate_model())
    assert description.name == "all-MiniLM-L6-v2"
    assert description.task is Task.EMBED
    assert description.architecture == "bert"
    assert (description.dim, description.max_tokens, description.vocab_size) == (384, 256, 30522)
    assert description.stages == (Pooling((PoolingMode.MEAN,)), Normalize())
    assert description.normalize
    assert not description.lowercase
    assert dict(description.prompts) == {}
    assert description.default_prompt_name is None
    assert description.config["hidden_act"] == "gelu"


def test_describing_reads_no_weights(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"")
    assert describe(directory).dim == 32


def test_prompts(tmp_path: Path) -> None:
    model = TinyBert(prompts={"query": "query: ", "document": ""}, default_prompt_name="query")
    description = describe(save_tiny_bert(tmp_path / "model", model))
    assert dict(description.prompts) == {"query": "query: ", "document": ""}
    assert description.default_prompt_name == "query"


@pytest.mark.parametrize("name", ["query", "document"])
def test_a_default_prompt_that_every_model_has_may_be_unwritten(directory: Path, name: str) -> None:
    from sentence_transformers import SentenceTransformer

    edit(directory, SETTINGS, put(default_prompt_name=name, prompts={"other": "x: "}))
    assert SentenceTransformer(str(directory), device="cpu").prompts[name] == ""
    assert describe(directory).default_prompt == ""


@pytest.mark.parametrize(
    ("written", "mode", "include_prompt"),
    [
        ({"pooling_mode_cls_token": True}, PoolingMode.CLS, True),
        ({"pooling_mode_mean_tokens": True, "include_prompt": False}, PoolingMode.MEAN, False),
        ({"pooling_mode": "cls", "embedding_dimension": 32}, PoolingMode.CLS, True),
        ({"pooling_mode": ["mean"]}, PoolingMode.MEAN, True),
        ({"pooling_mode": "cls", "pooling_mode_mean_tokens": True}, PoolingMode.CLS, True),
        ({"pooling_mode_mean_tokens": False}, PoolingMode.MEAN, True),
    ],
)
def test_pooling_in_every_layout(
    directory: Path, written: dict[str, Any], mode: PoolingMode, include_prompt: bool
) -> None:
    edit(directory, "1_Pooling/config.json", lambda _: written)
    assert describe(directory).stages[0] == Pooling((mode,), include_prompt)


@pytest.mark.parametrize(
    "prefix",
    ["sentence_transformers.models", "sentence_transformers.base.modules.any", "sentence_transformers"],
)
def test_classes_that_moved_between_releases(directory: Path, prefix: str) -> None:
    edit(
        directory,
        "modules.json",
        lambda modules: [{**m, "type": f"{prefix}.{m['type'].rpartition('.')[2]}"} for m in modules],
    )
    assert describe(directory).normalize


def test_an_encoder_in_a_folder_of_its_own(directory: Path) -> None:
    encoder = directory / "0_Transformer"
    encoder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json"):
        (directory / name).rename(encoder / name)
    (directory / "model.safetensors").rename(encoder / "model.safetensors")
    edit(directory, "modules.json", lambda modules: [{**modules[0], "path": "0_Transformer"}, *modules[1:]])
    description = describe(directory)
    assert description.weights_files == (encoder / "model.safetensors",)
    assert description.max_tokens == 48


@pytest.mark.parametrize(
    ("max_seq_length", "model_max_length", "expected"),
    [
        (48, 512, 48),
        (None, 20, 20),
        (None, 512, 64),
        (None, 1e30, 64),
        (None, None, 64),
        (600, 600, 64),
        (1, 9, 1),
    ],
)
def test_the_longest_input(
    tmp_path: Path, max_seq_length: int | None, model_max_length: int | None, expected: int
) -> None:
    model = TinyBert(max_seq_length=max_seq_length, model_max_length=model_max_length)
    assert describe(save_tiny_bert(tmp_path / "model", model)).max_tokens == expected


DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}


@pytest.mark.parametrize(
    ("max_seq_length", "rope", "expected"),
    [
        (600, {}, 600),
        (20, {}, 20),
        (None, {}, 64),
        (1e30, {}, 64),  # stands for no limit of its own
        (600, {"rope_scaling": DYNAMIC}, 64),
        (600, {"rope_parameters": {**DYNAMIC, "rope_theta": 10_000.0}}, 64),
        (600, {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, 600),
    ],
)
@pytest.mark.parametrize("model_type", ["llama", "nomic_bert"])
def test_rotary_positions_end_where_a_setting_says(
    tmp_path: Path, model_type: str, max_seq_length: float | None, rope: dict[str, Any], expected: int
) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert(config={"model_type": model_type, **rope}))
    edit(directory, "sentence_bert_config.json", put(max_seq_length=max_seq_length))
    assert describe(directory).max_tokens == expected


def test_graphs_of_other_names_are_named(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    with pytest.raises(CorruptModel, match="vecmill pull --onnx"):
        describe(directory)
    graphs = [directory / "onnx" / name for name in ("model_q4.onnx", "model_q4f16.onnx")]
    graphs[0].parent.mkdir()
    for graph in graphs:
        graph.touch()
    with pytest.raises(CorruptModel) as refusal:
        describe(directory)
    assert "onnx/model_q4.onnx and onnx/model_q4f16.onnx" in refusal.value.message
    assert refusal.value.message.endswith(f"name the graph in place of the directory, {graphs[0]}.")
    assert describe(graphs[0]).exported_graph == graphs[0]


@pytest.mark.parametrize("key", ["vision_config", "audio_config"])
def test_settings_of_another_input_that_are_null_are_none(directory: Path, key: str) -> None:
    sizes = {"hidden_size": None, "d_model": 32, "vocab_size": 600, "model_type": "unknown"}
    edit(directory, "config.json", put(**{key: None}, **sizes))
    assert describe(directory).encoder.hidden_size == 32
    edit(directory, "config.json", put(d_model=None))
    with pytest.raises(UnsupportedModel, match=r"config\.json has none of"):
        describe(directory)
    edit(directory, "config.json", put(**{key: {}}))
    with pytest.raises(UnsupportedModel, match=f"{key} is not supported"):
        describe(directory)


def module(index: int, kind: str) -> Edit:
    """One module is another class."""

    def change(modules: Any) -> Any:
        renamed = {**modules[index], "type": f"sentence_transformers.models.{kind}"}
        return [*modules[:index], renamed, *modules[index + 1 :]]

    return change


SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
MESSAGE = {"method": "forward", "method_output_name": "last_hidden_state", "format": "flat"}

UNSUPPORTED: dict[str, tuple[str, Edit, str]] = {
    "no_family": ("config.json", lambda config: {}, "there is no model_type"),
    "no_width": (
        "config.json",
        lambda config: {"model_type": "own", "vocab_size": 9},
        "'own' has no built-in graph, and config.json has none of hidden_size, d_model",
    ),
    "activation": ("config.json", put(hidden_act="mish"), "hidden_act 'mish'"),
    "positions": ("config.json", put(position_embedding_type="relative_key"), "position_embedding_type"),
    "decoder": ("config.json", put(is_decoder=True), "is_decoder"),
    "quantized": ("config.json", put(quantization_config={"bits": 4}), "quantization_config"),
    "own_model": ("config.json", put(auto_map={"AutoModel": "m.py"}), "auto_map names .*not run by default"),
    "own_tokenizer": ("tokenizer_config.json", put(auto_map={"AutoTokenizer": "m.py"}), "never run"),
    "pooling": ("1_Pooling/config.json", put(pooling_mode="attention"), "pooling attention"),
    "own_code": ("modules.json", lambda m: [{**m[0], "type": "model.Custom"}, *m[1:]], "never run"),
    **{
        kind: ("modules.json", module(2, kind), f"module {kind} is not supported")
        for kind in ("CNN", "LSTM", "WeightedLayerPooling", "SparseAutoEncoder", "Transformer")
    },
    **{
        kind: ("modules.json", module(0, kind), f"lists {kind}, Pooling")
        for kind in ("BoW", "CLIPModel", "WordEmbeddings", "SparseStaticEmbedding")
    },
    "order": ("modules.json", lambda m: m[::-1], "lists Normalize, Pooling, Transformer"),
    "two_poolings": ("modules.json", lambda m: [m[0], m[1], m[1]], "only one Pooling"),
    "normalize_first": ("modules.json", lambda m: [m[0], m[2], m[1]], "not supported before pooling"),
    "expansion": (TRANSFORMER, put(query_expansion={"length": 32}), "query_expansion"),
    "task": (TRANSFORMER, put(transformer_task="fill-mask"), "transformer_task 'fill-mask'"),
    "no_task": (TRANSFORMER, put(transformer_task="retrieval"), "transformer_task 'retrieval'"),
    "chat": (TRANSFORMER, put(modality_config={"message": MESSAGE}), "chat template"),
    "image": (TRANSFORMER, put(modality_config={"image": MESSAGE}), "modality_config"),
    "model_arguments": (TRANSFORMER, put(model_args={"is_causal": False}), "model_args.is_causal"),
    "config_arguments": (TRANSFORMER, put(config_kwargs={"num_layers": 1}), "config_kwargs.num_layers"),
    "processing": (TRANSFORMER, put(processing_kwargs={"text": {"max_length": 3}}), "processing_kwargs"),
    "type": (SETTINGS, put(model_type="ImageEncoder"), "model_type 'ImageEncoder'"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_done_yet_is_named(directory: Path, name: str) -> None:
    file, change, message = UNSUPPORTED[name]
    edit(directory, file, change)
    with pytest.raises(UnsupportedModel, match=message) as caught:
        describe(directory)
    assert file.rpartition("/")[2] in caught.value.message


CORRUPT: dict[str, tuple[str, Edit, str]] = {
    "modules_entry": ("modules.json", lambda m: [3], "needs a type and a path"),
    "config_list": ("config.json", lambda config: [config], "must hold a JSON object"),
    "heads": ("config.json", put(num_attention_heads=5), "not a multiple of num_attention_heads 5"),
    "negative": ("config.json", put(hidden_size=-1), "hidden_size must be"),
    "text_size": ("config.json", put(vocab_size="many"), "vocab_size must be"),
    "epsilon": ("config.json", put(layer_norm_eps=0), "layer_norm_eps must be"),
    "width": ("1_Pooling/config.json", put(word_embedding_dimension=31), "reads 31 dimensions"),
    "no_modules": ("modules.json", lambda m: [], "at least one module"),
    "truncate_dim": (SETTINGS, put(truncate_dim=0), "truncate_dim must be"),
    "settings": (TRANSFORMER, lambda settings: [settings], "must hold a JSON object"),
    "longest": ("sentence_bert_config.json", put(max_seq_length=0), "max_seq_length must be"),
    "longest_text": ("sentence_bert_config.json", put(max_seq_length="long"), "max_seq_length must be"),
    "prompts": ("config_sentence_transformers.json", put(prompts={"query": 3}), "prompts must be"),
    "default_prompt": (SETTINGS, put(default_prompt_name="x"), "'x' is not one of"),
    "default_prompt_list": (SETTINGS, put(default_prompt_name=["query"]), "is not one of"),
    "default_prompt_of_reranker": (
        SETTINGS,
        put(default_prompt_name="query", model_type="CrossEncoder"),
        "'query' is not one of",
    ),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_what_cannot_be_is_named(directory: Path, name: str) -> None:
    file, change, message = CORRUPT[name]
    edit(directory, file, change)
    with pytest.raises(CorruptModel, match=message):
        describe(directory)


@pytest.mark.parametrize("name", ["config.json", "1_Pooling/config.json", "model.safetensors"])
def test_a_missing_file_is_named(directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(CorruptModel, match=f"{name} is missing"):
        describe(directory)


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptModel) as caught:
        describe(tmp_path)
    assert caught.value.message == (
        f"{tmp_path} is not a model directory: config.json is missing. Name the directory that contains it."
    )


def test_adapters_are_not_passed_over(directory: Path) -> None:
    """Not even beside whole weights."""
    (directory / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    with pytest.raises(UnsupportedModel, match=r"adapter_config\.json: peft_type 'IA3' is not supported"):
        describe(directory)


def test_modules_that_were_lost_are_noticed(directory: Path) -> None:
    (directory / "modules.json").unlink()
    with pytest.raises(CorruptModel, match=r"modules\.json is missing, but 1_Pooling is there"):
        describe(directory)


def test_safetensors_are_preferred_to_pytorch_weights(directory: Path) -> None:
    (directory / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert describe(directory).weights_files == (directory / "model.safetensors",)
    assert not describe(directory).has_pytorch_weights


def test_pytorch_weights_are_used_without_safetensors(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    description = describe(directory)
    assert description.weights_files == (directory / "pytorch_model.bin",)
    assert description.has_pytorch_weights


def test_shards_of_pytorch_weights_are_found_through_their_index(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    names = [f"pytorch_model-0000{place}-of-00002.bin" for place in (1, 2)]
    index = {"weight_map": {"a": names[1], "b": names[0], "c": names[1]}}
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptModel, match=f"{names[0]} is missing; pytorch_model.bin.index.json lists it"):
        describe(directory)
    for name in names:
        (directory / name).write_bytes(b"")
    assert describe(directory).weights_files == tuple(directory / name for name in names)


@pytest.mark.parametrize("name", ["model.bin", "pytorch_model.pt", "tf_model.h5"])
def test_files_of_other_names_are_no_weights(directory: Path, name: str) -> None:
    (directory / "model.safetensors").rename(directory / name)
    with pytest.raises(CorruptModel, match=r"model\.safetensors is missing, and there is no"):
        describe(directory)


@pytest.mark.parametrize("name", ["tekken.json", "other.tiktoken"])
def test_a_vocabulary_of_another_kind_says_how_to_go_on(directory: Path, name: str) -> None:
    (directory / "tokenizer.json").unlink()
    (directory / name).write_bytes(b"")
    with pytest.raises(UnsupportedModel, match=r"no tokenizer\.json. Write it with"):
        describe(directory)


def test_no_tokenizer_at_all_is_named(directory: Path) -> None:
    (directory / "tokenizer.json").unlink()
    with pytest.raises(CorruptModel, match="has no tokenizer: neither"):
        describe(directory)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map must name"),
        ({"weight_map": {"a": "model-1.safetensors"}}, "model-1.safetensors is missing"),
        ({"weight_map": {"a": "../model-1.safetensors"}}, "leads out of the model directory"),
        ({"weight_map": {"a": "model\0.safetensors"}}, "which cannot be the name of a file"),
        ({"weight_map": {"a": "\ud800.safetensors"}}, "which cannot be the name of a file"),
        ({"weight_map": {"a": "\x1b]0;title\x07"}}, "which cannot be the name of a file"),
        ({"weight_map": {"a": "m" * 5_000}}, "cannot be opened: File name too long"),
    ],
)
def test_parts_of_weights_that_are_not_there_are_named(
    directory: Path, index: dict[str, Any], message: str
) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptModel, match=message) as caught:
        describe(directory)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 1_000


@pytest.mark.parametrize("text", ["", "{", "\x00", '{"a": NaN', "[" * 100_000])
def test_a_file_that_is_no_json_is_named(directory: Path, text: str) -> None:
    (directory / "config.json").write_text(text)
    with pytest.raises(CorruptModel, match=r"config\.json cannot be read as JSON"):
        describe(directory)


def test_bytes_that_are_no_text_are_named(directory: Path) -> None:
    (directory / "config.json").write_bytes(b'{"model_type": "\xff"}')
    with pytest.raises(CorruptModel, match=r"config\.json cannot be read"):
        describe(directory)


@pytest.mark.promise("safe-names")
@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"]
)
def test_links_out_of_the_directory_are_not_followed(directory: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    (directory / name).rename(outside)
    (directory / name).symlink_to(outside)
    with pytest.raises(CorruptModel, match="leads out of the model directory"):
        describe(directory)


def test_links_within_the_directory_are_followed(directory: Path) -> None:
    (directory / "config.json").rename(directory / "settings.json")
    (directory / "config.json").symlink_to(directory / "settings.json")
    assert describe(directory).dim == 32


def test_links_in_a_circle_are_named(directory: Path) -> None:
    (directory / "config.json").unlink()
    (directory / "config.json").symlink_to("config.json")
    with pytest.raises(CorruptModel, match=r"config\.json"):
        describe(directory)


HASH = "ab" * 32


@pytest.mark.parametrize(
    ("target", "is_read"),
    [
        (f"models--owner--name/blobs/{HASH}", True),
        (f"blobs/ab/{HASH}", True),
        (f"blobs/cd/{HASH}", False),
        ("blobs/ab/abcdef", False),
        (f"blobs/{HASH}", False),
        (f"others/ab/{HASH}", False),
        (f"models--owner--other/blobs/{HASH}", False),
    ],
)
def test_links_of_the_hub_clients_cache_are_followed(
    directory: Path, tmp_path: Path, target: str, is_read: bool
) -> None:
    snapshot = tmp_path / "cache/models--owner--name/snapshots/0123456789"
    snapshot.parent.mkdir(parents=True)
    directory.rename(snapshot)
    stored = tmp_path / "cache" / target
    stored.parent.mkdir(parents=True)
    (snapshot / "config.json").rename(stored)
    (snapshot / "config.json").symlink_to(stored)
    if is_read:
        assert describe(snapshot).dim == 32
        return
    with pytest.raises(CorruptModel, match="leads out of the model directory"):
        describe(snapshot)


@pytest.mark.promise("safe-names")
@pytest.mark.parametrize("path", ["../outside", "/etc", "1_Pooling/../../outside"])
def test_stages_outside_the_directory_are_not_read(directory: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    edit(directory, "modules.json", lambda m: [m[0], {**m[1], "path": path}, *m[2:]])
    with pytest.raises(CorruptModel, match="leads out of the model directory"):
        describe(directory)
