"""The tests of the clients' packages, against three models behind Ray Serve's router."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.conftest import ask, oracle, ranking, reranker, rows, single_rows, tokens
from clients.inputs import CLASSIFIER, EMBEDDER
from support.ray_server import ray_server, require_ray
from support.server import LiveServer
from support.task_models import save_task_model

__all__ = ["ask", "oracle", "ranking", "reranker", "rows", "single_rows", "tokens"]

MODELS = """
token_ids = "cl100k"
access_log = false
lame_duck_s = 1

[[models]]
model = "{embedder}"

[[models]]
model = "{reranker}"

[[models]]
model = "{classifier}"
"""


@pytest.fixture(scope="session")
def zoo(reranker: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The embedded model, a cross-encoder and a classifier, on one core each, behind the router."""
    require_ray()
    folder = tmp_path_factory.mktemp("ray")
    classifier = save_task_model(folder / CLASSIFIER, "BertForSequenceClassification", num_labels=3)
    config = MODELS.format(embedder=EMBEDDER, reranker=reranker, classifier=classifier)
    with ray_server(folder, config) as running:
        yield running


@pytest.fixture(scope="session")
def server(zoo: LiveServer) -> LiveServer:
    """The same, for tests of the first model."""
    return zoo
