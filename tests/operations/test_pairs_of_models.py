"""A model of texts with an encoder of pictures in another directory: `text=DIRECTORY,image=DIRECTORY`."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from click.testing import CliRunner

from support.drawn_pictures import draw_picture, write_picture
from support.task_models import save_task_model
from support.tiny_models import TinyBert, save_tiny_bert
from support.two_towers import PROJECTION, as_sentence_transformers, save_clip, save_siglip
from vecmill import Embed, Mill, MillConfig, SyncMill
from vecmill.commands.main import main
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import locate_model
from vecmill.models.location import PairName, is_on_hub
from vecmill.requests import EmbedPictures, Picture
from vecmill.values.aliases import FloatArray

TEXTS = ("cat", "a dog and the cat", "")
PICTURES = tuple(Picture(write_picture(draw_picture("RGB", 40, 50 + seed, seed), "PNG")) for seed in range(3))


def save_texts(folder: Path, *, width: int = PROJECTION, normalize: bool = False) -> Path:
    """A model of texts whose embeddings are projected into a space of pictures, as multilingual ones are."""
    save_tiny_bert(folder, TinyBert(normalize=normalize))
    dense = folder / "2_Dense"
    dense.mkdir()
    sizes = {"in_features": 32, "out_features": width, "bias": False}
    activation = "torch.nn.modules.linear.Identity"
    (dense / "config.json").write_text(json.dumps({**sizes, "activation_function": activation}))
    weight = np.random.default_rng(7).normal(size=(width, 32)).astype(np.float32)
    safetensors.numpy.save_file({"linear.weight": weight}, dense / "model.safetensors")
    modules = json.loads((folder / "modules.json").read_text())
    kind = "sentence_transformers.models.Dense"
    modules.insert(2, {"idx": 2, "name": "2", "path": "2_Dense", "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_texts(tmp_path_factory.mktemp("pairs") / "multilingual")


@pytest.fixture(scope="module")
def pictures(texts: Path) -> Path:
    return save_clip(texts.with_name("clip"))


@pytest.fixture(scope="module")
def pair(texts: Path, pictures: Path) -> str:
    return f"text={texts},image={pictures}"


def embed_pictures(model: Path | str) -> FloatArray:
    with SyncMill(model) as mill:
        return mill.run(EmbedPictures(PICTURES)).embeddings


@pytest.mark.promise("reference-embeddings")
async def test_texts_and_pictures_have_the_embeddings_of_the_two_models(
    pair: str, texts: Path, pictures: Path
) -> None:
    async with Mill(texts) as alone, Mill(pictures) as clip, Mill(pair) as both:
        expected = (await alone.run(Embed(TEXTS))).embeddings
        of_pictures = (await clip.run(EmbedPictures(PICTURES))).embeddings
        inputs = tuple(each for two in zip(TEXTS, PICTURES, strict=True) for each in two)
        found = (await both.run(EmbedPictures(inputs))).embeddings
        assert np.abs(found[::2] - expected).max() < 1e-6
        assert np.abs(found[1::2] - of_pictures).max() < 1e-6
        assert np.array_equal((await both.run(Embed(TEXTS))).embeddings, expected)
        assert both.description.name == "multilingual"
        assert len({alone.space, clip.space, both.space}) == 3
        assert both.identity.exact != alone.identity.exact


async def test_the_space_is_that_of_both_models_and_not_of_their_places(
    pair: str, texts: Path, pictures: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(pictures, tmp_path / "moved")
    other = save_clip(tmp_path / "other", seed=5)
    spaces = []
    for model in (pair, f"image={moved},text={texts}", f"text={texts},image={other}"):
        async with Mill(model, MillConfig(cache_dir=tmp_path / "cache")) as mill:
            spaces.append(mill.space)
    assert spaces[0] == spaces[1] != spaces[2]


def test_pictures_are_normalised_if_texts_are(pictures: Path, tmp_path: Path) -> None:
    texts = save_texts(tmp_path / "texts", normalize=True)
    plain = embed_pictures(pictures)
    unit = plain / np.linalg.norm(plain, axis=1, keepdims=True)
    assert np.abs(embed_pictures(f"text={texts},image={pictures}") - unit).max() < 1e-5
    normalized = as_sentence_transformers(
        shutil.copytree(pictures, tmp_path / "unit"), "CLIPModel", "Normalize"
    )
    assert np.abs(embed_pictures(f"text={texts},image={normalized}") - unit).max() < 1e-5
    raw = save_texts(tmp_path / "raw")
    assert np.abs(embed_pictures(f"text={raw},image={normalized}") - plain).max() < 1e-5


def test_the_texts_of_a_model_with_pictures_may_have_those_of_another(pictures: Path, tmp_path: Path) -> None:
    other = save_clip(tmp_path / "other", seed=9)
    with SyncMill(f"text={pictures},image={other}") as mill:
        found = mill.run(EmbedPictures((*TEXTS, *PICTURES))).embeddings
    with SyncMill(pictures) as mill:
        assert np.abs(found[:3] - mill.run(Embed(TEXTS)).embeddings).max() < 1e-6
    assert np.abs(found[3:] - embed_pictures(other)).max() < 1e-6


def test_embeddings_that_cannot_be_compared_are_refused(texts: Path, pictures: Path, tmp_path: Path) -> None:
    wide = save_texts(tmp_path / "wide", width=40)
    message = rf"{wide} has embeddings of 40 dimensions, and {pictures} those of pictures of {PROJECTION}"
    with pytest.raises(UnsupportedModel, match=message):
        describe_model(locate_model(f"text={wide},image={pictures}"))
    siglip = save_siglip(tmp_path / "siglip")
    with pytest.raises(
        UnsupportedModel, match=r"24 dimensions, .* of pictures of 48, which cannot be compared"
    ):
        describe_model(locate_model(f"text={texts},image={siglip}"))


def test_other_models_are_refused_on_either_side(texts: Path, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedModel, match="model_type 'bert' has no encoder of pictures that vecmill comp"
    ):
        describe_model(locate_model(f"text={pictures},image={texts}"))
    reranker = save_task_model(tmp_path / "reranker", "BertForSequenceClassification", num_labels=1)
    with pytest.raises(UnsupportedModel, match="is a model for rerank; only one that embeds texts can have"):
        describe_model(locate_model(f"text={reranker},image={pictures}"))
    adapted = shutil.copytree(pictures, tmp_path / "adapted")
    (adapted / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2}))
    with pytest.raises((UnsupportedModel, CorruptModel), match="adapter"):
        describe_model(locate_model(f"text={texts},image={adapted}"))


def _split(folder: Path, target: Path, kind: str) -> Path:
    """One encoder of CLIP with its settings alone, as transformers' class of that encoder saves it."""
    target.mkdir()
    config = json.loads((folder / "config.json").read_text())
    own = {**config[f"{kind}_config"], "projection_dim": config["projection_dim"]}
    (target / "config.json").write_text(json.dumps({**own, "model_type": f"clip_{kind}_model"}))
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    projection = "text_projection" if kind == "text" else "visual_projection"
    kept = {name: tensors[name] for name in tensors if name.startswith((f"{kind}_model", projection))}
    safetensors.numpy.save_file(kept, target / "model.safetensors", {"format": "pt"})
    others = ("preprocessor_config.json",) if kind == "vision" else ("vocab.json", "merges.txt")
    for name in (*others, "tokenizer_config.json") if kind == "text" else others:
        shutil.copy(folder / name, target)
    return target


def test_encoders_that_were_saved_alone_are_served_together(pictures: Path, tmp_path: Path) -> None:
    of_texts, of_pictures = (_split(pictures, tmp_path / kind, kind) for kind in ("text", "vision"))
    with SyncMill(pictures) as mill:
        expected = mill.run(EmbedPictures((*TEXTS, *PICTURES))).embeddings
    with SyncMill(f"text={of_texts},image={of_pictures}") as mill:
        assert np.abs(mill.run(EmbedPictures((*TEXTS, *PICTURES))).embeddings - expected).max() < 1e-6
    with SyncMill(of_texts) as mill:
        assert np.abs(mill.run(Embed(TEXTS)).embeddings - expected[:3]).max() < 1e-6
    with pytest.raises(UnsupportedModel, match=rf"pictures alone.*: text=DIRECTORY,image={of_pictures}\."):
        describe_model(locate_model(of_pictures))


def test_names_of_pairs() -> None:
    assert PairName.parse("text=a/b@c,image=./d=e") == PairName("a/b@c", "./d=e")
    assert PairName.parse("image=x,text=y") == PairName("y", "x")
    assert str(PairName("y", "x")) == "text=y,image=x"
    for other in (None, "text=a", "text=,image=b", "name=model", "text=a,images=b", "a/b"):
        assert PairName.parse(other) is None
    assert is_on_hub("text=/nowhere,image=owner/name")
    assert not is_on_hub("text=/nowhere,image=/elsewhere")


def test_commands_know_pairs(pair: str, texts: Path, pictures: Path, tmp_path: Path) -> None:
    page = json.loads(CliRunner().invoke(main, ["describe", pair, "--json"]).stdout)
    assert page["outcome"] == "graph"
    assert page["pictures"] == {"size": [32, 32], "patches": 17, "precision": "fp32"}
    assert {str(pictures / name) for name in ("config.json", "preprocessor_config.json")} <= {*page["reads"]}
    alone = json.loads(CliRunner().invoke(main, ["describe", str(texts), "--json"]).stdout)
    assert page["parameters"] > alone["parameters"]
    assert page["size_bytes"] > alone["size_bytes"]
    refused = CliRunner().invoke(main, ["optimize", pair, "-o", str(tmp_path / "out")])
    assert refused.exit_code == 2
    assert f"vecmill optimize {texts} -o DIRECTORY" in refused.output
    assert f"text=DIRECTORY,image={pictures}" in refused.output
