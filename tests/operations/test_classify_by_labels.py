"""`ClassifyByLabels`: zero-shot classification of pictures and texts, by labels that the request names."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from support.drawn_pictures import draw_picture, write_picture
from support.tiny_models import save_tiny_bert
from support.two_towers import save_clip, save_siglip, score_by_library
from vecmill import ClassifyByLabels, Mill, MillConfig, Picture, SyncMill
from vecmill.errors import CorruptModel, InvalidRequest, UnsupportedTask
from vecmill.requests import TextOptions, Truncation
from vecmill.values.aliases import FloatArray

FILES = tuple(write_picture(draw_picture("RGB", 40, 30 + seed, seed), "PNG") for seed in range(3))
PICTURES = tuple(map(Picture, FILES))
LABELS = ("cat", "dog", "the dog and a cat")


def load(folder: Path) -> SyncMill:
    return SyncMill(folder, MillConfig(cache_dir=folder.parent / "cache"))


def set_scale(folder: Path, **numbers: float) -> Path:
    """Write a scale with which scores are neither all equal nor 0 and 1."""
    path = folder / "model.safetensors"
    tensors = dict(safetensors.numpy.load_file(path))
    for name, number in numbers.items():
        tensors[name] = np.full(tensors[name].shape, number, np.float32)
    safetensors.numpy.save_file(tensors, path, {"format": "pt"})
    return folder


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("save", [save_clip, save_siglip])
def test_pictures_have_the_scores_of_transformers(save: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = set_scale(save(tmp_path / "model"), logit_scale=2.3)
    expected = score_by_library(folder, [f"This is a photo of {label}." for label in LABELS], FILES)
    with load(folder) as mill:
        found = mill.run(ClassifyByLabels(PICTURES, LABELS))
        assert found.labels == LABELS
        assert np.abs(found.scores - expected).max() < 1e-4
        assert expected.std() > 1e-3  # the scores tell the labels apart
        alone = mill.run(ClassifyByLabels(PICTURES[1:2], LABELS, "This is a photo of {}."))
        assert np.abs(alone.scores - expected[1:2]).max() < 1e-4
        raw = mill.run(ClassifyByLabels(PICTURES, LABELS, raw_scores=True)).scores
        sums = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
        assert np.abs((sums if save is save_clip else 1 / (1 + np.exp(-raw))) - expected).max() < 1e-4


def test_texts_are_compared_with_labels_by_the_cosine(tmp_path: Path) -> None:
    texts = ("a cat", "hello world")
    with load(save_tiny_bert(tmp_path / "model")) as mill:
        raw = mill.run(ClassifyByLabels(texts, LABELS, "about {}", raw_scores=True)).scores
        rows = unit(mill.embed([*texts, *(f"about {label}" for label in LABELS)]))
        assert np.abs(raw - 20 * rows[:2] @ rows[2:].T).max() < 1e-4
        scores = mill.run(ClassifyByLabels(texts, LABELS, "about {}")).scores
        assert np.allclose(scores.sum(axis=1), 1, atol=1e-5)
        usual = mill.run(ClassifyByLabels(texts, LABELS)).scores
        named = mill.run(ClassifyByLabels(texts, LABELS, "This example is {}.")).scores
        assert np.array_equal(usual, named)
        with pytest.raises(UnsupportedTask, match="cannot embed pictures"):
            mill.run(ClassifyByLabels(PICTURES, LABELS))


def unit(rows: FloatArray) -> FloatArray:
    found: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


@pytest.mark.promise("malformed-input")
def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    uncut = TextOptions(truncation=Truncation(is_allowed=False))
    long = "cat " * 40
    with load(save_clip(tmp_path / "model")) as mill:
        most = MillConfig().inputs.max_text_characters
        for request, message in (
            (ClassifyByLabels(PICTURES, ()), "`labels` is empty"),
            (ClassifyByLabels((), LABELS), "`input` is empty"),
            (ClassifyByLabels(PICTURES, LABELS, "a photo"), "`template` must have {}"),
            # The text would have as many bytes as the machine has not.
            (ClassifyByLabels(PICTURES, ("a" * 100_000,), "{}" * 100_000), f"at most {most} are accepted"),
            (ClassifyByLabels(PICTURES, ("a",) * 1_000, "{}" + "a" * (most - 9)), "`labels` has .* in all"),
            (ClassifyByLabels(("a", Picture(b"")), LABELS), r"`input\[1\]` is empty"),
            (ClassifyByLabels((PICTURES[0], long), LABELS, options=uncut), r"`input\[1\]`"),
            (ClassifyByLabels((PICTURES[0], "a"), ("b", long), options=uncut), r"`labels\[1\]`"),
            (ClassifyByLabels(PICTURES, (PICTURES[0],)), r"`labels\[0\]` is of type Picture"),  # type: ignore[arg-type]
        ):
            with pytest.raises(Exception, match=message):
                mill.run(request)
        cut = mill.run(ClassifyByLabels((PICTURES[0], "a"), ("b", long)))
        assert [each.index for each in cut.truncated] == [3]  # the labels follow the inputs


async def test_a_model_without_the_numbers_says_so_and_wrong_numbers_are_refused(tmp_path: Path) -> None:
    folder = set_scale(save_clip(tmp_path / "wrong"), logit_scale=1e6)
    with pytest.raises(CorruptModel, match="logarithms of at most 20"):
        async with Mill(folder, MillConfig(cache_dir=tmp_path / "cache")):
            pass
    folder = save_clip(tmp_path / "model")
    path = folder / "model.safetensors"
    tensors = dict(safetensors.numpy.load_file(path))
    del tensors["logit_scale"]
    safetensors.numpy.save_file(tensors, path, {"format": "pt"})
    async with Mill(folder, MillConfig(cache_dir=tmp_path / "cache")) as mill:
        with pytest.raises(UnsupportedTask, match="its files have no logit_scale"):
            await mill.run(ClassifyByLabels(PICTURES, LABELS))
    assert json.loads((folder / "config.json").read_text())["model_type"] == "clip"


async def test_a_classifier_has_labels_of_its_own(tmp_path: Path) -> None:
    async with Mill(save_tiny_bert(tmp_path / "model"), MillConfig(cache_dir=tmp_path / "cache")) as mill:
        with pytest.raises(InvalidRequest, match="raw_scores"):
            await mill.run(ClassifyByLabels(("a",), LABELS, raw_scores=1))  # type: ignore[arg-type]
