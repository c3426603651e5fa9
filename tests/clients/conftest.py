"""One live server with a model for each kind of call, and what the packages made of it."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from clients.inputs import CLASSIFIER, DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS
from support.client_packages import GROUPS, Ask, Outcome, drive
from support.plain_http import embed, post
from support.server import LiveServer, live_server
from support.task_models import save_task_model
from vecmill.types import FloatArray


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The embedded model, a cross-encoder and a classifier; on one core, so that rows repeat to the bit."""
    folder = tmp_path_factory.mktemp("zoo")
    one_label = save_task_model(folder / RERANKER, "BertForSequenceClassification", num_labels=1)
    three_labels = save_task_model(folder / CLASSIFIER, "BertForSequenceClassification", num_labels=3)
    models = (EMBEDDER, str(one_label), str(three_labels))
    with live_server(folder, arguments=(*models, "--cores", "1", "--token-ids", "cl100k")) as running:
        yield running


@pytest.fixture(scope="session")
def ask(zoo: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """What came of a call by a driver, each of which runs once."""

    @cache
    def answers(driver: str, group: str) -> dict[str, Outcome]:
        return drive(driver, group, zoo.url, scratch(tmp_path_factory, driver))

    def ask(driver: str, call: str) -> Outcome:
        name, _, group = driver.partition("@")
        return answers(name, group or GROUPS[name])[call]

    return ask


@pytest.fixture(scope="session")
def rows(zoo: LiveServer) -> FloatArray:
    """The plain floats of `TEXTS`."""
    return embed(zoo.url, TEXTS, model=EMBEDDER)


@pytest.fixture(scope="session")
def single_rows(zoo: LiveServer) -> FloatArray:
    """The same, each text in a request of its own: a product of fewer rows is rounded in another order."""
    return np.concatenate([embed(zoo.url, [text], model=EMBEDDER) for text in TEXTS])


@pytest.fixture(scope="session")
def ranking(zoo: LiveServer) -> list[list[float]]:
    """Places and scores of `DOCUMENTS`, the best first."""
    answer = post(f"{zoo.url}/rerank", {"model": RERANKER, "query": QUERY, "documents": DOCUMENTS})
    return [[entry["index"], entry["relevance_score"]] for entry in answer["results"]]


def scratch(factory: pytest.TempPathFactory, driver: str) -> Path:
    """A folder for what a client caches."""
    return factory.mktemp(driver)
