"""WeightedLayerPooling that fits neither its encoder nor its weights is refused, with a sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.published import edit_json
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import locate_model
from vecmill.models.fingerprint import fingerprint_model
from vecmill.models.stages import WeightedLayers

FOLDER = "1_WeightedLayerPooling"
SETTINGS = {"embedding_dimension": 32, "layer_start": 1, "num_hidden_layers": 2}


def save_model(folder: Path, weights: int = 2, **settings: Any) -> Path:
    """A tiny BERT of two layers and 32 dimensions, whose layers from number 1 are weighed."""
    directory = save_tiny_bert(folder, TinyBert())
    (directory / FOLDER).mkdir()
    (directory / FOLDER / "config.json").write_text(json.dumps({**SETTINGS, **settings}))
    tensors = {"layer_weights": np.linspace(0.5, 2, weights, dtype=np.float32)}
    safetensors.numpy.save_file(tensors, directory / FOLDER / "model.safetensors")
    edit_json(directory / "config.json", output_hidden_states=True)
    entries = json.loads((directory / "modules.json").read_text())
    entries.insert(
        1, {"idx": 1, "name": "w", "path": FOLDER, "type": f"sentence_transformers.models.{FOLDER[2:]}"}
    )
    (directory / "modules.json").write_text(json.dumps(entries))
    return directory


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "beyond_the_layers": ({"layer_start": 3}, "layer_start 3 do not fit the encoder, which has 2 layers"),
    "below_the_layers": ({"layer_start": -1}, "layer_start must be a whole number of at least 0"),
    "default_of_twelve": ({"num_hidden_layers": None}, "num_hidden_layers 12 and layer_start 1 do not fit"),
    "huge": ({"num_hidden_layers": 10**30}, "num_hidden_layers must be a whole number of at most"),
    "other_width": ({"embedding_dimension": 33}, "the module reads 33 dimensions, but its input has 32"),
    "no_width": ({"embedding_dimension": "wide"}, "embedding_dimension must be a whole number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_absurd_settings_are_refused(name: str, tmp_path: Path) -> None:
    settings, words = WRONG[name]
    with pytest.raises(CorruptModel, match=words):
        describe_model(locate_model(save_model(tmp_path / "model", **settings)))


@pytest.mark.parametrize("weights", [1, 3])
def test_weights_of_another_length_are_refused(weights: int, tmp_path: Path) -> None:
    description = describe_model(locate_model(save_model(tmp_path / "model", weights)))
    with pytest.raises(CorruptModel, match=rf"tensor 'layer_weights' has shape \[{weights}\]"):
        build_graph(description)


def test_the_weights_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model")
    before = describe_model(locate_model(directory))
    assert before.weighted_layers == WeightedLayers(directory / FOLDER / "model.safetensors", 1, 2)
    found = fingerprint_model(before)
    tensors = {"layer_weights": np.ones(2, np.float32)}
    safetensors.numpy.save_file(tensors, directory / FOLDER / "model.safetensors")
    assert fingerprint_model(describe_model(locate_model(directory))) != found


def test_architectures_that_give_no_layers_are_refused(tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model")
    edit_json(directory / "config.json", model_type="modernbert")
    with pytest.raises(UnsupportedModel, match="WeightedLayerPooling is not supported for the architecture"):
        describe_model(locate_model(directory))


def test_layers_after_other_modules_are_refused(tmp_path: Path) -> None:
    directory = save_model(tmp_path / "model")
    entries = json.loads((directory / "modules.json").read_text())
    (directory / "modules.json").write_text(json.dumps([entries[0], entries[2], entries[1]]))
    with pytest.raises(UnsupportedModel, match="WeightedLayerPooling is not supported in this position"):
        describe_model(locate_model(directory))
