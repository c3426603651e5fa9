"""The embedded model, laid out for every peer: a directory, and a cache of the hub with a link to it."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.exported_models import export_graph
from vecmill.models import locate_model

MODEL = "all-MiniLM-L6-v2"
HUB_NAME = f"sentence-transformers/{MODEL}"
GRAPH = Path("onnx/model.onnx")
MAX_TOKENS = 256
# Any hash will do: the peers look for the one that `refs/main` names.
REVISION = "0" * 40


@dataclass(frozen=True, slots=True)
class PreparedModels:
    """The folder of all layouts."""

    folder: Path

    @property
    def directory(self) -> Path:
        """The model as sentence-transformers saves it, with an ONNX graph as optimum writes it."""
        return self.folder / MODEL

    @property
    def flat(self) -> Path:
        """The same with the graph beside `config.json`. Infinity finds it there only, with optimum 2."""
        return self.folder / "flat" / MODEL

    @property
    def hub_home(self) -> Path:
        """The folder that `HF_HOME` names: its cache has the model as `HUB_NAME`."""
        return self.folder / "hub-home"

    @property
    def gguf(self) -> Path:
        """The file that `programs/write_gguf.py` writes, in the environment of its peer."""
        return self.folder / "model.gguf"


def prepare_models(folder: Path) -> PreparedModels:
    """Write the layouts into `folder`. All of them have the weights of the embedded model."""
    models = PreparedModels(folder)
    source = locate_model(None).directory
    shutil.copytree(source, models.directory)
    _truncate_at_max_tokens(models.directory)
    export_graph(source, models.directory / GRAPH, "BertModel")
    _link_flat(models)
    _link_hub_cache(models)
    return models


def _truncate_at_max_tokens(directory: Path) -> None:
    """Pad to the longest text of a batch and truncate at `MAX_TOKENS`, as sentence-transformers does.

    The published tokenizer pads to 128 tokens and truncates there, which libraries read that ignore
    `sentence_bert_config.json`.
    """
    _change(directory / "tokenizer.json", truncation=None, padding=None)
    _change(directory / "tokenizer_config.json", model_max_length=MAX_TOKENS)


def _change(file: Path, **entries: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | entries), "utf-8")


def _link_flat(models: PreparedModels) -> None:
    models.flat.mkdir(parents=True)
    for path in models.directory.iterdir():
        if path.name != GRAPH.parent.name:
            (models.flat / path.name).symlink_to(path)
    (models.flat / GRAPH.name).symlink_to(models.directory / GRAPH)


def _link_hub_cache(models: PreparedModels) -> None:
    repository = models.hub_home / "hub" / f"models--{HUB_NAME.replace('/', '--')}"
    snapshot = repository / "snapshots" / REVISION
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(models.directory, target_is_directory=True)
    reference = repository / "refs/main"
    reference.parent.mkdir()
    reference.write_text(REVISION, "utf-8")
