"""Graphs that others exported: the rows are those of the same model read from safetensors.

Those rows are held to sentence-transformers and transformers elsewhere (`tests/parity`, `tests/tasks`).
Exports by optimum itself are in `test_optimum_exports.py`.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from engines.later_starts import imports_of_start
from support.exported_models import INPUTS, export_graph, fuse, pool_mean, quantize, without_weights
from support.families import save_tiny_family
from support.jina_adapters import SETTINGS
from support.published import Published, edit_json, save_published
from support.reference import load_reference
from support.rows_check import TOLERANCE, assert_same_rows, compute_rows
from support.task_models import save_colbert, save_task_model
from support.texts import short_texts
from support.tiny_models import TinyBert, save_tiny_bert
from support.window_families import FAMILIES
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import CorruptModel, InvalidConfig, ModelNotFound, SetupError, UnsupportedModel
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import EnginePlan, Precision

LENGTHS = [1, 2, 5, 12, 30, 40, 40, 3, 17, 8]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def embedder(root: Path) -> Path:
    """A tiny model with safetensors and an exported graph beside them."""
    prompts = {"query": "which is the best of all : "}
    directory = save_tiny_bert(root / "embedder", TinyBert(prompts=prompts, include_prompt=False))
    export_graph(directory, directory / "onnx/model.onnx", "BertModel")
    return directory


@pytest.fixture
def exported(embedder: Path, tmp_path: Path) -> Path:
    """The graph of the embedder and its settings, without its safetensors."""
    return without_weights(embedder, tmp_path / "model")


def load(
    model: Path, task: Task | None = None, *, plan: EnginePlan | None = None, cache: Path | None = None
) -> OnnxEngine:
    location = locate_model(model)
    description = describe_model(location, task)
    cache_dir = cache or location.directory.parent / f"cache-{location.directory.name}"
    return OnnxEngine.load(description, plan or EnginePlan(), cores=2, cache_dir=cache_dir)


def sequences(token_types: int = 1, lengths: list[int] = LENGTHS) -> list[TokenSequence]:
    random = np.random.default_rng(3)
    ids = [random.integers(5, 500, length) for length in lengths]
    types = [np.sort(random.integers(0, token_types, length)) for length in lengths]
    prompts = [min(4, length // 2) for length in lengths]
    return [
        TokenSequence.of(one.tolist(), kind.tolist(), prompt_length=prompt)
        for one, kind, prompt in zip(ids, types, prompts, strict=True)
    ]


def assert_same_as(
    expected: OnnxEngine, exported: OnnxEngine, texts: list[TokenSequence], tolerance: float
) -> None:
    alone = compute_rows(
        lambda batch: expected.run(batch, width=1), texts, [[one] for one in range(len(texts))]
    )
    scale = max(1.0, float(np.abs(alone).max()))
    for width in exported.info.lane_widths:
        assert_same_rows(
            lambda batch, width=width: exported.run(batch, width=width),  # type: ignore[misc]
            texts,
            alone,
            tolerance=tolerance * scale,
        )
    expected.close()
    exported.close()


def test_pooling_is_that_of_the_models_own_settings(embedder: Path, root: Path) -> None:
    exported = without_weights(embedder, root / "pooled")
    assert_same_as(load(embedder), load(exported), sequences(2), TOLERANCE)


def test_rows_of_texts_are_those_of_the_reference(embedder: Path, root: Path) -> None:
    engine = load(without_weights(embedder, root / "reference"))
    texts = short_texts(2, 40)
    reference = load_reference(embedder)
    expected = reference.encode(texts)
    assert_same_rows(
        lambda batch: engine.run(batch, width=1),
        Tokenizer.load(describe_model(locate_model(embedder))).encode(texts),
        expected,
    )
    engine.close()


@pytest.mark.promise("same-in-any-batch")
def test_an_expansion_beyond_the_window_weighs_no_padding_of_its_batch(root: Path) -> None:
    """The exported graph lets a token that attends to nothing weigh all slots."""
    class_name, settings = FAMILIES["modernbert"]
    encoder = save_published(root / "windows", Published(class_name, "BertTokenizer", settings=settings))
    folder = root / "windows-exported"
    save_colbert(folder, encoder, {"strategy": "fixed", "attend": False, "length": 24})
    export_graph(encoder, folder / "onnx/model.onnx", class_name, inputs=INPUTS[:2])
    (folder / "model.safetensors").unlink()
    query = TokenSequence.of([*range(5, 9), *[4] * 20], unseen=20)
    engine = load(folder)
    alone, together = (
        engine.run(Batch.of(texts), width=1).of_text(0)
        for texts in ([query], [query, TokenSequence.of(list(range(5, 45)))])
    )
    engine.close()
    assert np.abs(alone - together).max() <= TOLERANCE / 10


def test_a_graph_at_the_root_of_a_plain_directory(embedder: Path, root: Path) -> None:
    plain = root / "plain"
    plain.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        shutil.copy(embedder / name, plain)
    exported = without_weights(plain, root / "plain-exported")
    shutil.copy(embedder / "onnx/model.onnx", exported)
    (exported / "ort_config.json").write_text(json.dumps({"optimization": {}, "quantization": {}}))
    assert_same_as(load(plain), load(exported), sequences(2), TOLERANCE)


@pytest.mark.parametrize("has_modules", [True, False])
def test_sentence_transformers_exports_pool_themselves_or_let_us(root: Path, has_modules: bool) -> None:
    directory = save_tiny_bert(root / f"sentences-{has_modules}", TinyBert())
    exported = without_weights(directory, root / f"sentences-exported-{has_modules}")
    export_graph(directory, exported / "model.onnx", "BertModel", finish=pool_mean)
    if not has_modules:
        (exported / "modules.json").unlink()
        shutil.rmtree(exported / "1_Pooling")
    assert_same_as(load(directory), load(exported), sequences(2), TOLERANCE)


def test_a_graph_may_give_nothing_but_finished_rows(root: Path) -> None:
    directory = save_tiny_bert(root / "finished", TinyBert())
    exported = without_weights(directory, root / "finished-exported")
    graph = export_graph(directory, exported / "model.onnx", "BertModel", finish=pool_mean)
    change_graph(graph, lambda model: model.graph.output.pop(0))
    assert_same_as(load(directory), load(exported), sequences(2), TOLERANCE)


@pytest.mark.parametrize(
    ("class_name", "settings", "task"),
    [
        ("BertForSequenceClassification", {"num_labels": 3}, None),
        ("BertForSequenceClassification", {"num_labels": 1}, None),
        ("BertForTokenClassification", {"num_labels": 4}, None),
        ("BertForMaskedLM", {}, Task.SPARSE),
    ],
    ids=["classifier", "reranker", "token classifier", "sparse"],
)
def test_models_with_heads(root: Path, class_name: str, settings: dict[str, Any], task: Task | None) -> None:
    name = f"{class_name}-{len(settings)}-{settings.get('num_labels')}"
    directory = save_task_model(root / name, class_name, **settings)
    exported = without_weights(directory, root / f"{name}-exported")
    export_graph(directory, exported / "onnx/model.onnx", class_name)
    ours, theirs = load(directory, task), load(exported, task)
    texts = sequences(2)
    for plan in ([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], [[one] for one in range(len(texts))]):
        for places in plan:
            batch = Batch.of([texts[place] for place in places])
            assert_alike(theirs.run(batch, width=1), ours.run(batch, width=1))


def assert_alike(found: Embeddings, expected: Embeddings) -> None:
    assert np.array_equal(found.offsets, expected.offsets)
    if expected.columns is not None:
        assert found.columns is not None
        assert np.array_equal(found.columns, expected.columns)
    scale = max(1.0, float(np.abs(expected.values).max()))
    assert np.abs(found.values - expected.values).max() <= TOLERANCE * scale


@pytest.mark.parametrize(
    ("class_name", "settings"),
    [
        ("RobertaModel", {"pad_token_id": 1, "max_position_embeddings": 66, "type_vocab_size": 1}),
        ("DistilBertModel", {}),
    ],
)
def test_graphs_that_take_no_token_types(root: Path, class_name: str, settings: dict[str, Any]) -> None:
    sizes = (
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64}
        if class_name == "DistilBertModel"
        else {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    )
    directory = root / class_name
    save_tiny_family(directory, class_name, vocab_size=600, **sizes, **settings)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(save_tiny_bert(root / f"{class_name}-tokenizer") / name, directory)
    exported = without_weights(directory, root / f"{class_name}-exported")
    export_graph(directory, exported / "model.onnx", class_name, inputs=INPUTS[:2])
    assert_same_as(load(directory), load(exported), sequences(), TOLERANCE)


def test_a_fused_graph(embedder: Path, root: Path) -> None:
    exported = without_weights(embedder, root / "fused")
    fuse(embedder / "onnx/model.onnx", exported / "model_optimized.onnx", heads=4, hidden_size=32)
    (exported / "onnx/model.onnx").unlink()
    kinds = {node.op_type for node in onnx.load(exported / "model_optimized.onnx").graph.node}
    assert {"Attention", "SkipLayerNormalization"} <= kinds
    assert_same_as(load(embedder), load(exported), sequences(2), TOLERANCE)


def test_a_quantised_graph_gives_a_text_one_row_whoever_shares_the_call(embedder: Path, root: Path) -> None:
    exported = without_weights(embedder, root / "quantised")
    quantize(embedder / "onnx/model.onnx", exported / "model_quantized.onnx")
    shutil.rmtree(exported / "onnx")
    engine, whole = load(exported), load(embedder)
    assert engine.info.precision == Precision.INT8
    texts = sequences(2)
    alone = [[one] for one in range(len(texts))]
    rows = compute_rows(lambda batch: engine.run(batch, width=1), texts, alone)
    assert_same_rows(lambda batch: engine.run(batch, width=1), texts, rows, tolerance=0.0)
    expected = compute_rows(lambda batch: whole.run(batch, width=1), texts, alone)
    assert (rows * expected).sum(axis=1).min() > 0.99
    engine.close()
    whole.close()


def test_weights_beside_the_graph_are_part_of_the_model(embedder: Path, root: Path) -> None:
    exported = without_weights(embedder, root / "beside")
    store_weights(exported / "onnx/model.onnx", "model.onnx_data")
    description = describe_model(locate_model(exported))
    assert [path.name for path in description.weights_files] == ["model.onnx", "model.onnx_data"]
    assert_same_as(load(embedder), load(exported), sequences(2), TOLERANCE)


def test_a_hubs_cache_of_links_is_read(embedder: Path, root: Path) -> None:
    exported = without_weights(embedder, root / "original")
    store_weights(exported / "onnx/model.onnx", "model.onnx_data")
    repository = root / "models--owner--name"
    snapshot = repository / "snapshots/0123"
    (repository / "blobs").mkdir(parents=True)
    for number, path in enumerate(path for path in sorted(exported.rglob("*")) if path.is_file()):
        link = snapshot / path.relative_to(exported)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob = shutil.copy(path, repository / f"blobs/{number}")
        link.symlink_to(blob)
    assert_same_as(load(embedder), load(snapshot), sequences(2), TOLERANCE)


def test_safetensors_go_before_a_graph_that_nobody_named(embedder: Path) -> None:
    assert describe_model(locate_model(embedder)).exported_graph is None
    named = describe_model(locate_model(embedder / "onnx/model.onnx"))
    assert named.exported_graph == embedder / "onnx/model.onnx"
    assert named.directory == embedder
    assert_same_as(load(embedder), load(embedder / "onnx/model.onnx"), sequences(2), TOLERANCE)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["model.onnx", "onnx/model.onnx"], "onnx/model.onnx"),
        (["model_quantized.onnx", "model_optimized.onnx"], "model_optimized.onnx"),
        (["onnx/model_quantized.onnx", "model.onnx"], "onnx/model_quantized.onnx"),
        (["onnx/model_quantized.onnx", "onnx/model_qint8_arm64.onnx"], "onnx/model_quantized.onnx"),
    ],
)
def test_which_graph_is_taken_unasked(exported: Path, names: list[str], chosen: str) -> None:
    shutil.rmtree(exported / "onnx")
    for name in names:
        (exported / name).parent.mkdir(exist_ok=True)
        (exported / name).touch()
    assert describe_model(locate_model(exported)).exported_graph == exported / chosen


def test_a_graph_has_the_precision_that_it_has(embedder: Path) -> None:
    plan = EnginePlan(precision=Precision.INT8)
    with pytest.raises(InvalidConfig, match=r"does not compute in int8 on this machine\. It offers fp32\."):
        load(embedder / "onnx/model.onnx", plan=plan)


def test_a_later_start_reads_no_graph(embedder: Path, root: Path) -> None:
    exported = without_weights(embedder, root / "later")
    load(exported, cache=root / "later-cache").close()
    assert imports_of_start(exported, root / "later-cache", "onnx", besides=set()) == set()


def test_engines_that_read_safetensors_refuse_a_graph(
    embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import MappingProxyType

    from vecmill import engines

    other = engines.EngineEntry("vecmill.engines.fake:FakeEngine")
    monkeypatch.setattr(engines, "ENGINES", MappingProxyType({"other": other}))
    description = describe_model(locate_model(embedder / "onnx/model.onnx"))
    with pytest.raises(
        UnsupportedModel, match=r"The other engine does not run exported graphs such as .*model\.onnx"
    ):
        load_engine(description, EnginePlan("other"), cores=1, cache_dir=tmp_path)


# What is refused, by a change of the graph or of its directory.

Change = Callable[[onnx.ModelProto], Any]


def change_graph(path: Path, change: Change) -> None:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)


def store_weights(graph: Path, name: str) -> None:
    """Move the weights of a graph into a file beside it."""
    model = onnx.load(graph)
    graph.unlink()
    onnx.save(model, graph, save_as_external_data=True, location=name, size_threshold=100)


def rename(model: onnx.ModelProto, old: str, new: str) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.name = new if value.name == old else value.name
    for node in model.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = new if name == old else name


def fix_shape(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 128


def claim_width(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 33


def claim_half(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16


def take_floats(model: onnx.ModelProto) -> None:
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT


REFUSED: dict[str, tuple[Change, type[SetupError], str]] = {
    "an unknown input": (
        lambda model: rename(model, "token_type_ids", "past_key_values.0.key"),
        UnsupportedModel,
        r"the graph takes past_key_values\.0\.key; supported",
    ),
    "no attention mask": (
        lambda model: rename(model, "attention_mask", "position_ids"),
        UnsupportedModel,
        "does not take attention_mask",
    ),
    "an unknown output": (
        lambda model: rename(model, "last_hidden_state", "pooler_output"),
        UnsupportedModel,
        "outputs are pooler_output; a model for embed needs token_embeddings or last_hidden_state",
    ),
    "a fixed shape": (fix_shape, UnsupportedModel, "input_ids has a fixed shape"),
    "a mask of floats": (take_floats, UnsupportedModel, "attention_mask holds FLOAT"),
    "rows of half precision": (claim_half, UnsupportedModel, "last_hidden_state holds FLOAT16"),
    "rows of another width": (claim_width, CorruptModel, "33 dimensions; the model's settings say 32"),
}


def test_the_graph_of_a_model_with_adapters_is_refused(exported: Path) -> None:
    """It has no input for the adapter of a text."""
    edit_json(
        exported / "config.json",
        **SETTINGS,
        model_type="xlm-roberta",
        auto_map={"AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig"},
        position_embedding_type="rotary",
        rotary_emb_base=10_000.0,
        type_vocab_size=1,
    )
    with pytest.raises(UnsupportedModel, match=r"onnx/model\.onnx: config\.json has lora_adaptations"):
        load(exported)


@pytest.mark.parametrize("name", REFUSED)
def test_graphs_that_are_refused(exported: Path, name: str) -> None:
    change, error, message = REFUSED[name]
    change_graph(exported / "onnx/model.onnx", change)
    with pytest.raises(error, match=message) as caught:
        load(exported)
    assert "onnx/model.onnx" in caught.value.message


def test_a_torn_graph_is_named(exported: Path) -> None:
    graph = exported / "onnx/model.onnx"
    graph.write_bytes(graph.read_bytes()[:1000])
    with pytest.raises(CorruptModel, match=r"onnx/model\.onnx is not a complete ONNX graph"):
        load(exported)


def test_pairs_need_token_types_where_the_model_has_them(root: Path, tmp_path: Path) -> None:
    directory = save_task_model(tmp_path / "pairs", "BertForSequenceClassification", num_labels=1)
    exported = without_weights(directory, tmp_path / "exported")
    export_graph(directory, exported / "model.onnx", "BertForSequenceClassification", inputs=INPUTS[:2])
    with pytest.raises(UnsupportedModel, match="does not take token_type_ids, by which"):
        load(exported)


@pytest.mark.parametrize(
    ("file", "setting", "asked"),
    [
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim"),
        ("1_Pooling/config.json", {"include_prompt": False}, "pooling without the prompt"),
    ],
)
def test_finished_rows_cannot_be_made_again(
    tmp_path: Path, file: str, setting: dict[str, Any], asked: str
) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    exported = without_weights(directory, tmp_path / "exported")
    graph = export_graph(directory, exported / "model.onnx", "BertModel", finish=pool_mean)
    change_graph(graph, lambda model: model.graph.output.pop(0))
    settings = json.loads((exported / file).read_text())
    (exported / file).write_text(json.dumps({**settings, **setting}))
    with pytest.raises(
        UnsupportedModel, match=f"is sentence_embedding, but the model's settings need {asked}"
    ):
        load(exported)


def test_finished_rows_of_another_width_are_noticed(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    exported = without_weights(directory, tmp_path / "exported")
    export_graph(
        directory,
        exported / "model.onnx",
        "BertModel",
        finish=lambda output, mask: {"sentence_embedding": output.last_hidden_state[:, 0, :20]},
    )
    change_graph(
        exported / "model.onnx",
        lambda model: model.graph.output[0].type.tensor_type.shape.dim[1].Clear(),
    )
    with pytest.raises(UnsupportedModel, match=r"outputs of shape \[4, 20\] .* require \[4, 32\]"):
        SyncMill(exported, MillConfig(cache_dir=tmp_path / "cache"))


def test_weights_in_a_file_of_another_name_are_refused(exported: Path) -> None:
    store_weights(exported / "onnx/model.onnx", "weights.bin")
    with pytest.raises(UnsupportedModel, match=r"are in 'weights\.bin', which is missing or not named after"):
        load(exported)


@pytest.mark.promise("safe-names")
def test_weights_outside_the_directory_are_refused(exported: Path, tmp_path: Path) -> None:
    store_weights(exported / "onnx/model.onnx", "model.onnx_data")
    data = exported / "onnx/model.onnx_data"
    shutil.move(data, tmp_path / "elsewhere")
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptModel, match="leads out of the model directory"):
        load(exported)


def test_a_graph_outside_the_directory_is_refused(exported: Path, tmp_path: Path) -> None:
    graph = exported / "onnx/model.onnx"
    shutil.move(graph, tmp_path / "elsewhere.onnx")
    graph.symlink_to(tmp_path / "elsewhere.onnx")
    with pytest.raises(CorruptModel, match="leads out of the model directory"):
        load(exported)


def test_a_graph_without_a_model_is_not_found(embedder: Path, tmp_path: Path) -> None:
    lone = shutil.copy(embedder / "onnx/model.onnx", tmp_path)
    with pytest.raises(ModelNotFound, match=r"neither its folder nor the one above has a config\.json"):
        locate_model(lone)


def test_a_description_of_safetensors_names_no_graph(embedder: Path) -> None:
    description: ModelDescription = describe_model(locate_model(embedder))
    assert [path.name for path in description.weights_files] == ["model.safetensors"]
