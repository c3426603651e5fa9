"""CLIP and SigLIP: each text and each picture has the embedding of transformers, alone and among others."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.drawn_pictures import draw_picture, write_picture
from support.two_towers import (
    as_sentence_transformers,
    embed_by_library,
    save_clip,
    save_siglip,
)
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import fingerprint_model, locate_model
from vecmill.requests import EmbedPictures, Picture
from vecmill.values.aliases import FloatArray

TOLERANCE = 1e-4
# One is longer than the models read, and one has the end of a text within it.
TEXTS = ("cat", "A dog and a <|endoftext|> cat", "", "the  CAT\tthe dog", "the cat " * 30)
PICTURES = tuple(
    write_picture(draw_picture(mode, height, width, seed), "PNG")
    for seed, (mode, height, width) in enumerate(
        [("RGB", 32, 32), ("RGB", 40, 90), ("L", 70, 31), ("RGBA", 33, 64), ("P", 17, 9)]
    )
)
MODELS: dict[str, Callable[[Path], Path]] = {
    "clip": save_clip,
    "clip of 2022": lambda folder: save_clip(folder, seed=1, end=2),
    "siglip": save_siglip,
    "siglip padded on the left": lambda folder: save_siglip(folder, seed=1, padding_side="left"),
}


def embed(folder: Path, inputs: Sequence[str | bytes], **settings: Any) -> FloatArray:
    """The embeddings of texts and of files of pictures, in one request."""
    mixed = tuple(each if isinstance(each, str) else Picture(each) for each in inputs)
    with SyncMill(folder, MillConfig(**settings)) as mill:
        return mill.run(EmbedPictures(mixed)).embeddings


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "engine",
    ["onnx", pytest.param("openvino", marks=pytest.mark.full), pytest.param("torch", marks=pytest.mark.full)],
)
def test_texts_and_pictures_have_the_embeddings_of_transformers(
    name: str, engine: str, tmp_path: Path
) -> None:
    if not ENGINES[engine].is_installed:
        pytest.skip(f"{engine} is not installed")
    folder = MODELS[name](tmp_path / "model")
    expected = embed_by_library(folder, TEXTS, PICTURES)
    # Pictures and texts in turns, so that each must find its place again.
    order = [index for pair in zip(range(5), range(5, 10), strict=True) for index in pair]
    inputs: tuple[str | bytes, ...] = (*TEXTS, *PICTURES)
    found = embed(folder, [inputs[index] for index in order], engine=engine, cache_dir=tmp_path / "cache")
    assert np.abs(found - expected[order]).max() < TOLERANCE


@pytest.mark.promise("reference-embeddings")
def test_a_picture_alone_has_the_embedding_that_it_has_among_others(tmp_path: Path) -> None:
    pictures = [Picture(each) for each in PICTURES]
    with SyncMill(save_clip(tmp_path / "model")) as mill:
        together = mill.run(EmbedPictures((*pictures * 8,))).embeddings
        alone = [mill.run(EmbedPictures((each,))).embeddings[0] for each in pictures]
    for index, row in enumerate(together):
        assert np.abs(row - alone[index % len(pictures)]).max() < 1e-5


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("kinds", [("CLIPModel",), ("Transformer",), ("CLIPModel", "Normalize")], ids=str)
def test_modules_of_sentence_transformers_around_the_encoders_are_for_both(
    kinds: tuple[str, ...], tmp_path: Path
) -> None:
    folder = save_clip(tmp_path / "model")
    expected = embed_by_library(folder, TEXTS, PICTURES)
    as_sentence_transformers(folder, *kinds)
    if kinds == ("Transformer",):
        names = {"text": "text", "image": "image"}
        modalities = {
            name: {"method": f"get_{name}_features", "method_output_name": "pooler_output"} for name in names
        }
        settings = {"modality_config": modalities, "module_output_name": "sentence_embedding"}
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    if "Normalize" in kinds:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(embed(folder, (*TEXTS, *PICTURES)) - expected).max() < TOLERANCE


def _swap_colours(tensors: dict[str, Any]) -> None:
    name = "vision_model.embeddings.patch_embedding.weight"
    tensors[name] = np.ascontiguousarray(tensors[name][:, ::-1])


def _turn_patches(tensors: dict[str, Any]) -> None:
    name = "vision_model.embeddings.patch_embedding.weight"
    tensors[name] = np.ascontiguousarray(tensors[name].transpose(0, 1, 3, 2))


def _swap_positions(tensors: dict[str, Any]) -> None:
    name = "vision_model.embeddings.position_embedding.weight"
    tensors[name][[0, 1]] = tensors[name][[1, 0]]


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("defect", [_swap_colours, _turn_patches, _swap_positions])
def test_a_defect_of_the_encoder_of_pictures_shows(
    defect: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    folder = save_clip(tmp_path / "model")
    expected = embed_by_library(folder, (), PICTURES)
    file = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    defect(tensors)
    safetensors.numpy.save_file(tensors, file)
    assert np.abs(embed(folder, PICTURES) - expected).max() > 100 * TOLERANCE


def test_how_pictures_are_prepared_is_a_part_of_the_space_and_of_the_prepared_model(tmp_path: Path) -> None:
    spaces, prints = set(), set()
    changes: tuple[dict[str, Any], ...] = ({}, {"resample": 2}, {"image_mean": [0.5, 0.5, 0.5]})
    for number, changed in enumerate(changes):
        folder = save_clip(tmp_path / str(number))
        file = folder / "preprocessor_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
        with SyncMill(folder) as mill:
            spaces.add(mill.identity.space)
        description = describe_model(locate_model(folder))
        assert description.pictures is not None
        prints |= {fingerprint_model(description), fingerprint_model(description.pictures.encoder)}
    assert len(spaces) == 3
    assert len(prints) == 3  # texts, and pictures with two normalisations; resizing is not in the graph


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"patch_size": [8, 8]}, UnsupportedModel, r"vision_config\.patch_size \[8, 8\] is not supported"),
        ({"patch_size": 64}, CorruptModel, r"image_size 32 has 0 patches of patch_size 64"),
        ({"num_channels": 1}, UnsupportedModel, r"vision_config\.num_channels 1 is not supported"),
        ({"image_size": 40}, UnsupportedModel, r"size and crop_size make pictures of 32 x 32 pixels"),
    ],
    ids=str,
)
def test_settings_that_no_encoder_of_pictures_can_have_are_refused(
    change: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    folder = save_clip(tmp_path / "model")
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config["vision_config"] |= change
    file.write_text(json.dumps(config))
    with pytest.raises(error, match=message):
        describe_model(locate_model(folder))


def test_a_model_that_does_not_say_how_pictures_are_prepared_is_refused(tmp_path: Path) -> None:
    folder = save_clip(tmp_path / "model")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(CorruptModel, match=r"preprocessor_config\.json is missing, which says how pictures"):
        describe_model(locate_model(folder))
