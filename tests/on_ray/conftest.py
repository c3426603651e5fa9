"""The tests of the clients' packages, against three models behind Ray Serve's router."""

from collections.abc import Iterator
from contextlib import ExitStack
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
def serving() -> Iterator[ExitStack]:
    """What closes the server of `zoo`: a machine can have one Serve, and fixtures of a session stay."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def zoo(serving: ExitStack, reranker: Path, tmp_path_factory: pytest.TempPathFactory) -> LiveServer:
    """The embedded model, a cross-encoder and a classifier, on one core each, behind the router."""
    require_ray()
    folder = tmp_path_factory.mktemp("ray")
    classifier = save_task_model(folder / CLASSIFIER, "BertForSequenceClassification", num_labels=3)
    config = MODELS.format(embedder=EMBEDDER, reranker=reranker, classifier=classifier)
    return serving.enter_context(ray_server(folder, config))


@pytest.fixture(scope="session")
def server(zoo: LiveServer) -> LiveServer:
    """The same, for tests of the first model."""
    return zoo
