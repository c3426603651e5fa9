"""The directories in which CLIP and SigLIP are published: each has the embeddings of transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.drawn_pictures import draw_picture, write_picture
from support.pytorch_files import save_arrays
from support.two_towers import embed_by_library, save_clip, save_siglip
from vecmill import SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import locate_model
from vecmill.requests import EmbedPictures, Picture
from vecmill.values.aliases import FloatArray

TOLERANCE = 1e-4
TEXTS = ("cat", "A dog and a <|endoftext|> cat", "the cat " * 30)
PICTURES = tuple(
    write_picture(draw_picture("RGB", height, width, width), "PNG") for height, width in ((40, 90), (70, 31))
)


def embed(folder: Path) -> FloatArray:
    with SyncMill(folder) as mill:
        return mill.run(EmbedPictures((*TEXTS, *map(Picture, PICTURES)))).embeddings


def change(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def _with_older_settings(folder: Path) -> None:
    """Files of 2021: what the older object lacks has its default, whatever the other one says."""
    config = json.loads((folder / "config.json").read_text())
    older = {}
    for key in ("text_config", "vision_config"):
        part = config[key]
        older[f"{key}_dict"] = {name: part[name] for name in part if name != "hidden_act"}
        part |= {"hidden_act": "gelu", "layer_norm_eps": 0.1, "num_attention_heads": 2}
    change(folder / "config.json", **config, **older)


def _with_empty_older_settings(folder: Path) -> None:
    change(folder / "config.json", text_config_dict=None, vision_config_dict=None)


def _with_settings_that_siglip_does_not_read(folder: Path) -> None:
    change(folder / "config.json", text_config_dict={"hidden_act": "relu"}, vision_config_dict={})


def _with_whole_processor(folder: Path) -> None:
    """transformers 5 reads the settings of the processor first, and then a file of their own."""
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    whole = {"image_processor": {**settings, "resample": 0}, "processor_class": "CLIPProcessor"}
    (folder / "processor_config.json").write_text(json.dumps(whole))


def _with_processor_without_pictures(folder: Path) -> None:
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": "CLIPProcessor"}))


def _without_class_of_processor(folder: Path) -> None:
    change(folder / "preprocessor_config.json", image_processor_type=None)


def _with_other_activation(folder: Path) -> None:
    """LAION's."""
    config = json.loads((folder / "config.json").read_text())
    for key in ("text_config", "vision_config"):
        config[key]["hidden_act"] = "gelu"
    change(folder / "config.json", **config)


def _with_other_epsilon(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    for key in ("text_config", "vision_config"):
        config[key]["layer_norm_eps"] = 0.05
    change(folder / "config.json", **config)


def _in_16_bits(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    halves = {name: tensor.astype(np.float16) for name, tensor in tensors.items()}
    safetensors.numpy.save_file(halves, file, {"format": "pt"})


CLIP: dict[str, Callable[[Path], None]] = {
    "settings of 2021": _with_older_settings,
    "no settings of 2021": _with_empty_older_settings,
    "settings of pictures in those of the processor": _with_whole_processor,
    "a processor without pictures": _with_processor_without_pictures,
    "no class of the processor": _without_class_of_processor,
    "another activation": _with_other_activation,
    "another epsilon": _with_other_epsilon,
    "16 bits": _in_16_bits,
}
UNCHANGED = (
    "settings of 2021",
    "no settings of 2021",
    "a processor without pictures",
    "no class of the processor",
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> FloatArray:
    """The embeddings of the directory that nothing has changed."""
    return embed(save_clip(tmp_path_factory.mktemp("plain"), seed=3))


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("name", CLIP)
def test_a_published_directory_has_the_embeddings_of_transformers(
    name: str, plain: FloatArray, tmp_path: Path
) -> None:
    folder = save_clip(tmp_path / "model", seed=3)
    CLIP[name](folder)
    expected = embed_by_library(folder, TEXTS, PICTURES)
    assert np.abs(embed(folder) - expected).max() < TOLERANCE
    is_same = np.abs(plain - expected).max() < TOLERANCE
    assert is_same == (name in UNCHANGED)


@pytest.mark.promise("reference-embeddings")
def test_siglip_reads_no_settings_of_2021(tmp_path: Path) -> None:
    folder = save_siglip(tmp_path / "model")
    _with_settings_that_siglip_does_not_read(folder)
    assert np.abs(embed(folder) - embed_by_library(folder, TEXTS, PICTURES)).max() < TOLERANCE


def test_a_padding_without_an_embedding_is_refused(tmp_path: Path) -> None:
    folder = save_siglip(tmp_path / "model")
    change(folder / "tokenizer_config.json", pad_token="<no row>")
    with (
        pytest.raises(CorruptModel, match=r"the token '<no row>', .*pad_token.* has the id 7, but .* 7 emb"),
        SyncMill(folder),
    ):
        pass


def test_a_setting_of_pictures_in_those_of_the_processor_is_named_with_its_place(tmp_path: Path) -> None:
    folder = save_clip(tmp_path / "model")
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": {"do_pad": True}}))
    with pytest.raises(
        UnsupportedModel, match=r"processor_config\.json: image_processor: do_pad True is not"
    ):
        describe_model(locate_model(folder))


def _as_pickle(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    del tensors["logit_scale"]  # a number, which is no part of an encoder
    save_arrays(folder / "pytorch_model.bin", tensors)
    file.unlink()


def _as_shards(folder: Path) -> None:
    """Each file has tensors of both encoders."""
    file = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    places = {name: shards[index % 2] for index, name in enumerate(sorted(tensors))}
    for shard in shards:
        part = {name: tensors[name] for name in tensors if places[name] == shard}
        safetensors.numpy.save_file(part, folder / shard, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    file.unlink()


def _with_numbers_of_positions(folder: Path) -> None:
    """Weights of 2021 have them as tensors."""
    file = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    for tower, count in (("text", 24), ("vision", 17)):
        tensors[f"{tower}_model.embeddings.position_ids"] = np.arange(count)[None]
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})


@pytest.mark.parametrize("store", [_as_pickle, _as_shards, _with_numbers_of_positions])
def test_the_files_of_weights_change_no_embedding(
    store: Callable[[Path], None], plain: FloatArray, tmp_path: Path
) -> None:
    folder = save_clip(tmp_path / "model", seed=3)
    store(folder)
    assert np.abs(embed(folder) - plain).max() < 1e-6


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        (
            "chinese_clip",
            "Its encoder of texts is a BERT, .* use text=sentence-transformers/clip-ViT-B-32-multi",
        ),
        ("jina_clip", "EVA-02, .* Use a model of CLIP, such as sentence-transformers/clip-ViT-B-32"),
        ("siglip2", "NaFlex model, .* fixed resolution, such as google/siglip2-base-patch16-224"),
    ],
)
def test_other_models_of_pictures_are_refused_with_one_that_can_be_used(
    model_type: str, message: str, tmp_path: Path
) -> None:
    folder = save_clip(tmp_path / "model")
    code = {"AutoModel": "modeling.Model"} if model_type == "jina_clip" else None
    change(folder / "config.json", model_type=model_type, auto_map=code)
    for trusts_code in (False, True):
        with pytest.raises(UnsupportedModel, match=message):
            describe_model(locate_model(folder, trusts_code=trusts_code))


def test_the_tokenizer_of_siglip_of_2023_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = save_siglip(tmp_path / "model")
    change(folder / "tokenizer_config.json", tokenizer_class="SiglipTokenizer")
    message = (
        r"lower-cases texts in Python .*: some texts would have other .* google/siglip2-base-patch16-224"
    )
    with pytest.raises(UnsupportedModel, match=message), SyncMill(folder):
        pass
    (folder / "tokenizer.json").rename(folder / "spiece.model")
    with pytest.raises(UnsupportedModel, match=message), SyncMill(folder):
        pass
