"""Directories with more entries than any model has are refused before the entries are followed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.directory_layouts.modules import MOST_MODULES
from vecmill.errors import CorruptModel
from vecmill.models import locate_model


def repeat_modules(directory: Path) -> None:
    path = directory / "modules.json"
    first, *others = json.loads(path.read_text())
    path.write_text(json.dumps([first, *others * 1_000]))


def repeat_routed_modules(directory: Path) -> None:
    names = [f"query_{number}" for number in range(MOST_MODULES + 1)]
    dropout = "sentence_transformers.models.Dropout"
    router = {
        "types": dict.fromkeys(names, dropout),
        "structure": {"query": names, "document": names},
        "parameters": {},
    }
    (directory / "router_config.json").write_text(json.dumps(router))
    kind = "sentence_transformers.models.Router"
    (directory / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))


def name_many_files(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    files = {f"tensor.{number}": f"model-{number}.safetensors" for number in range(2_000)}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def list_many_labels(directory: Path) -> None:
    path = directory / "config.json"
    labels = {str(number): f"label {number}" for number in range(400_000)}
    path.write_text(json.dumps({**json.loads(path.read_text()), "id2label": labels}))


LONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "modules": (repeat_modules, r"modules.json names \d+ modules; a model has at most"),
    "routed modules": (repeat_routed_modules, r"router_config.json names \d+ modules"),
    "weights files": (name_many_files, "weight_map names 2000 files; at most"),
    "labels": (list_many_labels, "config.json has more than 300000 values"),
}


@pytest.mark.promise("bounded-input", "loop-responsive")
@pytest.mark.parametrize("name", LONG)
def test_more_entries_than_any_model_has_are_refused(name: str, tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    spoil, message = LONG[name]
    spoil(directory)
    with pytest.raises(CorruptModel, match=message):
        describe_model(locate_model(str(directory)))


def test_a_hundred_thousand_labels_are_read(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    path = directory / "config.json"
    labels = {str(number): f"label {number}" for number in range(100_000)}
    numbers = {label: int(number) for number, label in labels.items()}
    document = {**json.loads(path.read_text()), "id2label": labels, "label2id": numbers}
    path.write_text(json.dumps(document))
    assert describe_model(locate_model(str(directory))).config["label2id"] == numbers
