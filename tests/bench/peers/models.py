"""The measured model, laid out for every peer: a directory, and a cache of the hub with a link to it.

It is the embedded model, or another directory of sentence-transformers, or the embedded model whose positions
are repeated: it reads long texts, and is for speed alone.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from support.exported_models import INPUTS, export_graph
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model

MODEL = "all-MiniLM-L6-v2"
GRAPH = Path("onnx/model.onnx")
# The tokens that the embedded model reads.
MAX_TOKENS = 256
# Longer texts than of `LONG_TOKENS` are measured by `bench.long_texts`.
LONG, LONG_TOKENS, POSITIONS = "repeated-positions", 2_000, 2_048
# Any hash will do: the peers look for the one that `refs/main` names.
REVISION = "0" * 40


@dataclass(frozen=True, slots=True)
class PreparedModels:
    """The folder of all layouts of the model `name`, which reads `max_tokens` tokens."""

    folder: Path
    name: str = MODEL
    max_tokens: int = MAX_TOKENS

    @property
    def directory(self) -> Path:
        """The model as sentence-transformers saves it, with an ONNX graph as optimum writes it."""
        return self.folder / self.name

    @property
    def source(self) -> Path:
        """The same without a graph."""
        return self.folder / "source" / self.name

    @property
    def flat(self) -> Path:
        """The same with the graph beside `config.json`. Infinity finds it there only, with optimum 2."""
        return self.folder / "flat" / self.name

    @property
    def hub_name(self) -> str:
        """The name of the model on the hub."""
        return f"sentence-transformers/{self.name}"

    @property
    def hub_home(self) -> Path:
        """The folder that `HF_HOME` names: its cache has the model as `hub_name`."""
        return self.folder / "hub-home"

    @property
    def gguf(self) -> Path:
        """The file that `programs/write_gguf.py` writes, in the environment of its peer."""
        return self.folder / "model.gguf"


def prepare_models(folder: Path, model: Path | None = None) -> PreparedModels:
    """Write the layouts into `folder`, all with the same weights.

    `model` is a directory, or the name `LONG`; by default it is the embedded model.
    """
    embedded = locate_model(None).directory
    if model is None:
        models = PreparedModels(folder)
        shutil.copytree(embedded, models.source)
    elif str(model) == LONG:
        models = PreparedModels(folder, LONG, LONG_TOKENS)
        shutil.copytree(embedded, models.source)
        _repeat_positions(models.source)
    else:
        model = model.resolve()
        models = PreparedModels(
            folder, model.name, min(describe_model(locate_model(model)).max_tokens, LONG_TOKENS)
        )
        shutil.copytree(model, models.source, ignore=shutil.ignore_patterns("onnx", "openvino"))
    _truncate(models.source, models.max_tokens)
    shutil.copytree(models.source, models.directory)
    _export(models)
    _link_flat(models)
    _link_hub_cache(models)
    return models


def _export(models: PreparedModels) -> None:
    settings = json.loads((models.source / "config.json").read_text("utf-8"))
    inputs = INPUTS if settings.get("type_vocab_size") else INPUTS[:2]
    export_graph(models.source, models.directory / GRAPH, name_encoder(settings), inputs=inputs)


def name_encoder(settings: Mapping[str, Any]) -> str:
    """Return the class without a head: `MPNetModel` of `MPNetForMaskedLM`."""
    return re.sub(r"For\w+$", "Model", settings["architectures"][0])


def _repeat_positions(directory: Path) -> None:
    file = directory / "model.safetensors"
    tensors = load_file(file)
    (name,) = [name for name in tensors if name.endswith("position_embeddings.weight")]
    rows = tensors[name]
    tensors[name] = np.tile(rows, (POSITIONS // len(rows), 1))
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("position_ids")}
    file.unlink()
    save_file(tensors, file, {"format": "pt"})
    _change(directory / "config.json", max_position_embeddings=POSITIONS)


def _truncate(directory: Path, max_tokens: int) -> None:
    """Pad to the longest text of a batch and truncate at `max_tokens`, as sentence-transformers does.

    The published tokenizer of the embedded model pads to 128 tokens and truncates there, which libraries read
    that ignore `sentence_bert_config.json`.
    """
    _change(directory / "tokenizer.json", truncation=None, padding=None)
    _change(directory / "tokenizer_config.json", model_max_length=max_tokens)
    _change(directory / "sentence_bert_config.json", max_seq_length=max_tokens)


def _change(file: Path, **entries: Any) -> None:
    known = json.loads(file.read_text("utf-8")) if file.exists() else {}
    file.write_text(json.dumps(known | entries), "utf-8")


def _link_flat(models: PreparedModels) -> None:
    models.flat.mkdir(parents=True)
    for path in models.directory.iterdir():
        if path.name != GRAPH.parent.name:
            (models.flat / path.name).symlink_to(path)
    (models.flat / GRAPH.name).symlink_to(models.directory / GRAPH)


def _link_hub_cache(models: PreparedModels) -> None:
    repository = models.hub_home / "hub" / f"models--{models.hub_name.replace('/', '--')}"
    snapshot = repository / "snapshots" / REVISION
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(models.directory, target_is_directory=True)
    reference = repository / "refs/main"
    reference.parent.mkdir()
    reference.write_text(REVISION, "utf-8")
