"""Real servers for the console: with a model for each view, and with published weights alone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from support.server import MODEL, live_server
from support.task_models import save_task_model
from support.texts import mixed_texts
from vecmill.commands.main import main
from vecmill.hardware.processor import multiplies_bytes
from vecmill.models import locate_model

SEED = 17
# Weights that find entities of two kinds in short texts.
ENTITIES_SEED = 18
START_S = 180.0  # the int8 weights are made at the first start
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
OPTIMIZED_WITHIN_S = 20
# The precision is refused where it would be slow.
INT8 = ["int8"] if multiplies_bytes() else []
# A second name of the embedded model.
ALIAS = "text-embedding-3-small"


@contextmanager
def serve_all_tasks(folder: Path) -> Iterator[str]:
    """Serve the embedded model in fp32, int8 and optimised, and a tiny model for each other task; the URL."""
    reranker = save_task_model(folder / "tiny-reranker", "BertForSequenceClassification", num_labels=1)
    kinds = {0: "bad", 1: "fair", 2: "good"}
    classifier = save_task_model(
        folder / "tiny-classifier", "BertForSequenceClassification", seed=SEED, id2label=kinds
    )
    entities = save_task_model(
        folder / "tiny-entities",
        "BertForTokenClassification",
        seed=ENTITIES_SEED,
        id2label=dict(enumerate(LABELS)),
    )
    models = [*variants(folder), *[{"model": str(path)} for path in (reranker, classifier, entities)]]
    with serve_models(folder, models) as url:
        yield url


@contextmanager
def serve_real_models(folder: Path, entity_graph: Path) -> Iterator[str]:
    """Serve the embedded model in fp32, int8 and optimised, and an exported token classifier; the URL."""
    models = [*variants(folder), {"model": str(entity_graph), "name": entity_graph.parent.parent.name}]
    with serve_models(folder, models) as url:
        yield url


def variants(folder: Path) -> list[dict[str, Any]]:
    """The tables of the configuration file for the embedded model; in int8 where the processor has it."""
    return [
        {"model": MODEL, "alias": [ALIAS]},
        *({"model": MODEL, "name": name, "precision": "int8"} for name in INT8),
        {"model": str(optimize(folder)), "name": "optimized"},
    ]


@contextmanager
def serve_models(folder: Path, models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Serve the models of these tables, with files and batches; the URL."""
    tables = (
        "[[models]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in model.items())
        for model in models
    )
    config = folder / "vecmill.toml"
    config.write_text("\n".join(tables), encoding="utf-8")
    arguments = ["--config", str(config), "--batch-dir", str(folder / "batches")]
    with live_server(folder, arguments=arguments, timeout_s=START_S) as server:
        yield server.url


def optimize(folder: Path) -> Path:
    """A directory of `vecmill optimize` for the embedded model, measured for some seconds only."""
    texts = folder / "texts"
    texts.write_text("\n".join(mixed_texts(SEED, 48)), encoding="utf-8")
    options = ["--engine", "onnx", "--cache-dir", str(folder / "cache"), "--texts", str(texts)]
    limit = ["--time-limit-s", str(OPTIMIZED_WITHIN_S), "-o", str(folder / "optimized")]
    model = str(locate_model().directory)
    result = CliRunner().invoke(main, ["optimize", model, *options, *limit])
    assert (folder / "optimized/vecmill.json").exists(), result.output
    return folder / "optimized"
