"""Exported graphs of CLIP and SigLIP: the embeddings of transformers, alone and among others."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.drawn_pictures import draw_picture, write_picture
from support.exported_models import quantize
from support.exported_towers import NAMES, export_both, export_tower, export_towers
from support.two_towers import as_sentence_transformers, embed_by_library, save_clip, save_siglip
from vecmill import Mill, MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.graphs.exported import load_exported
from vecmill.models import locate_model
from vecmill.requests import EmbedPictures, Picture
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import EnginePlan

TOLERANCE = 1e-4
TEXTS = ("cat", "A dog and a <|endoftext|> cat", "", "the cat " * 30)
PICTURES = tuple(
    write_picture(draw_picture("RGB", height, width, width), "PNG")
    for height, width in ((32, 32), (40, 90), (70, 31))
)
SAVE: dict[str, Callable[[Path], Path]] = {"clip": save_clip, "siglip": save_siglip}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("towers")


@pytest.fixture(scope="module")
def clip(root: Path) -> Path:
    return save_clip(root / "clip")


@pytest.fixture(scope="module")
def exported(clip: Path, root: Path) -> Path:
    return export_towers(clip, root / "clip-exported")


def embed(model: Path | str, inputs: Sequence[str | bytes]) -> FloatArray:
    mixed = tuple(each if isinstance(each, str) else Picture(each) for each in inputs)
    with SyncMill(model) as mill:
        return mill.run(EmbedPictures(mixed)).embeddings


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("name", [pytest.param("clip", marks=pytest.mark.full), "siglip", "clip with a mask"])
def test_exported_graphs_have_the_embeddings_of_transformers(name: str, root: Path, tmp_path: Path) -> None:
    save = SAVE[name.partition(" ")[0]]
    folder = save(tmp_path / "model")
    towers = export_towers(folder, tmp_path / "exported", reads_mask="mask" in name)
    expected = embed_by_library(folder, TEXTS, PICTURES)
    order = [0, 4, 1, 5, 2, 6, 3]
    inputs: tuple[str | bytes, ...] = (*TEXTS, *PICTURES)
    mixed = [each if isinstance(each, str) else Picture(each) for each in inputs]
    with SyncMill(towers) as mill:
        together = mill.run(EmbedPictures(tuple(mixed[index] for index in order))).embeddings
        alone = [mill.run(EmbedPictures((each,))).embeddings[0] for each in mixed]
    assert np.abs(together - expected[order]).max() < TOLERANCE
    assert np.abs(np.stack(alone) - expected).max() < TOLERANCE


async def test_graphs_in_8_bits_are_served_if_they_are_the_only_ones_or_named(
    exported: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(exported, tmp_path / "model")
    for name in NAMES.values():
        plain_graph = folder / "onnx" / name
        quantize(plain_graph, plain_graph.with_name(plain_graph.name.replace(".onnx", "_quantized.onnx")))
    named = folder / "onnx/text_model_quantized.onnx"
    plain = embed(folder, (*TEXTS, *PICTURES))
    of_texts, of_pictures = (
        embed(named, TEXTS),
        embed(named.with_name("vision_model_quantized.onnx"), PICTURES),
    )
    for graph in NAMES.values():
        (folder / "onnx" / graph).unlink()
    async with Mill(folder, MillConfig(cache_dir=tmp_path / "cache")) as mill:
        assert mill.info.precision == "int8"
        assert mill.picture_info is not None
        assert mill.picture_info.precision == "int8"
        alone = (await mill.run(EmbedPictures((*TEXTS, *map(Picture, PICTURES))))).embeddings
    assert np.array_equal(alone, np.concatenate((of_texts, of_pictures)))
    assert np.abs(alone - plain).max() > 1e-4
    lengths = [np.linalg.norm(each, axis=1) for each in (alone, plain)]
    assert ((alone * plain).sum(1) / lengths[0] / lengths[1]).min() > 0.9


def test_one_directory_for_each_encoder_is_served_as_a_pair(
    clip: Path, exported: Path, tmp_path: Path
) -> None:
    """As Qdrant publishes them: `model.onnx` at the root, with the settings of one encoder."""
    folders = {}
    for side, lost in (("text", "preprocessor_config.json"), ("image", "tokenizer_config.json")):
        ignored = shutil.ignore_patterns(
            "onnx", lost, *(("vocab.json", "merges.txt") if side == "image" else ())
        )
        folders[side] = shutil.copytree(exported, tmp_path / side, ignore=ignored)
        shutil.copy(exported / "onnx" / NAMES[side], folders[side] / "model.onnx")
    pair = f"text={folders['text']},image={folders['image']}"
    expected = embed_by_library(clip, TEXTS, PICTURES)
    assert np.abs(embed(pair, (*TEXTS, *PICTURES)) - expected).max() < TOLERANCE
    swapped = f"text={folders['text']},image={exported / 'onnx/text_model.onnx'}"
    message = "the graph takes input_ids; supported are graphs that take pixel_values"
    with pytest.raises(UnsupportedModel, match=message), SyncMill(swapped):
        pass
    (folders["text"] / "model.onnx").rename(folders["text"] / "text_model.onnx")
    with pytest.raises(
        UnsupportedModel, match=r"no vision_model\.onnx beside it.* serve text=DIRECTORY,image="
    ):
        describe_model(locate_model(folders["text"]))


@pytest.mark.parametrize("lost", NAMES.values())
def test_both_graphs_must_be_there(lost: str, exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / "onnx" / lost).unlink()
    (kept,) = set(NAMES.values()) - {lost}
    with pytest.raises(CorruptModel, match=rf"{lost} is missing, the graph beside {kept}"):
        describe_model(locate_model(folder / "onnx" / kept))
    with pytest.raises((CorruptModel, UnsupportedModel), match=r"text_model\.onnx|model\.safetensors"):
        describe_model(locate_model(folder))


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("name", ["clip", pytest.param("siglip", marks=pytest.mark.full)])
def test_one_graph_of_both_has_the_embeddings_of_transformers_at_length_1(name: str, tmp_path: Path) -> None:
    folder = SAVE[name](tmp_path / "model")
    expected = embed_by_library(folder, TEXTS, PICTURES)
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    exported = shutil.copytree(folder, tmp_path / "both", ignore=shutil.ignore_patterns("*.safetensors"))
    graph = export_both(folder, exported / "model.onnx")
    cache = tmp_path / "cache"
    with SyncMill(exported, MillConfig(cache_dir=cache)) as mill:
        found = mill.run(EmbedPictures((*TEXTS, *map(Picture, PICTURES)))).embeddings
    assert np.abs(found - expected).max() < TOLERANCE
    assert not list(cache.rglob("part.onnx*"))
    tensors = [
        len(load_exported(side).graph.initializer) for side in describe_model(locate_model(graph)).sides
    ]
    assert all(0 < count < len(onnx.load(graph).graph.initializer) for count in tensors)
    with pytest.raises(UnsupportedModel, match="embeddings of length 1; this model has others"):
        SyncMill(f"text={folder},image={exported}").__enter__()
    OnnxEngine.load_in_place(describe_model(locate_model(exported)), cores=1).close()


def test_a_graph_of_one_side_is_not_taken_for_that_of_both(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "model")
    description = describe_model(locate_model(folder))
    with pytest.raises(UnsupportedModel, match="The openvino engine does not run exported graphs"):
        load_engine(description, EnginePlan("openvino"), cores=1, cache_dir=tmp_path)
    for name, message in zip(NAMES.values(), ("take pixel_values", "take input_ids"), strict=True):
        shutil.copy(exported / "onnx" / name, folder / "model.onnx")
        shutil.rmtree(folder / "onnx", ignore_errors=True)
        with pytest.raises(UnsupportedModel, match=message), SyncMill(folder):
            pass


def test_stages_after_a_finished_embedding_are_refused_but_for_a_normalisation(
    exported: Path, clip: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(exported, tmp_path / "model")
    as_sentence_transformers(folder, "CLIPModel", "Normalize")
    found = embed(folder, (*TEXTS, *PICTURES))
    expected = embed_by_library(clip, TEXTS, PICTURES)
    assert np.abs(found - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < TOLERANCE
    as_sentence_transformers(folder, "CLIPModel")
    (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 8}')
    with pytest.raises(UnsupportedModel, match="the model has Truncate after it"), SyncMill(folder):
        pass


@pytest.mark.parametrize(
    ("side", "change", "message"),
    [
        ("image", "fixed", r"pixel_values has the shape \[2, 3, 32, 32\]; it must take any number"),
        ("text", "fixed", "input_ids has a fixed shape"),
        ("image", "half", "pixel_values holds FLOAT16"),
        ("image", "renamed", "the graph takes images; supported are graphs that take pixel_values"),
        ("text", "renamed", "the graph takes images; supported are graphs that take input_ids, and opt"),
        ("text", "output", r"outputs are pooled; a model for embed needs text_embeds"),
        ("image", "output", r"outputs are pooled; a model for embed needs image_embeds"),
    ],
)
def test_graphs_of_another_form_are_refused(
    side: str, change: str, message: str, exported: Path, clip: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(exported, tmp_path / "model")
    graph = folder / "onnx" / NAMES[side]
    if change == "fixed":
        export_tower(clip, graph, side, fixed=True)
    else:
        model = onnx.load(graph)
        given, made = model.graph.input[0], model.graph.output[0]
        if change == "half":
            given.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        else:
            is_input = change == "renamed"
            value, name = (given, "images") if is_input else (made, "pooled")
            ends = (name, value.name) if is_input else (value.name, name)
            node = onnx.helper.make_node("Identity", [ends[0]], [ends[1]])
            model.graph.node.insert(0 if is_input else len(model.graph.node), node)
            value.name = name
        onnx.save(model, graph)
    with pytest.raises(UnsupportedModel, match=message), SyncMill(folder):
        pass
