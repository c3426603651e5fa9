"""The server that the clients' packages are tested with: a model for each kind of call."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clients.inputs import CLASSIFIER, EMBEDDER, RERANKER
from support.server import LiveServer, live_server
from support.task_models import save_task_model


def save_reranker(folder: Path) -> Path:
    """The directory of a cross-encoder, in `folder`."""
    return save_task_model(folder / RERANKER, "BertForSequenceClassification", num_labels=1)


@contextmanager
def serve_zoo(folder: Path, reranker: Path, cache: Path) -> Iterator[LiveServer]:
    """The embedded model, a cross-encoder and a classifier; on one core, so that rows repeat to the bit.

    `cache` has the prepared models.
    """
    three_labels = save_task_model(folder / CLASSIFIER, "BertForSequenceClassification", num_labels=3)
    models = (EMBEDDER, str(reranker), str(three_labels))
    options = ("--cores", "1", "--token-ids", "cl100k", "--cache-dir", str(cache))
    command = (sys.executable, str(Path(__file__).with_name("zoo_server.py")))
    with live_server(folder, arguments=(*models, *options), command=command) as running:
        yield running
