"""One live server with a model for each kind of call, and what the packages made of it."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.inputs import DOCUMENTS, EMBEDDER, QUERY, RERANKER, TEXTS
from clients.zoo import save_reranker, serve_zoo
from support.client_packages import Ask, Outcome, drive, driver_and_group
from support.plain_http import embed, post
from support.reference import load_reference
from support.server import LiveServer
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray

# How far the server may be from the oracle, which computes in another order.
TOLERANCE = 1e-5


@pytest.fixture(scope="session")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a cross-encoder."""
    return save_reranker(tmp_path_factory.mktemp("reranker"))


@pytest.fixture(scope="session")
def zoo(reranker: Path, kept_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The embedded model, a cross-encoder and a classifier; on one core, so that rows repeat to the bit."""
    with serve_zoo(tmp_path_factory.mktemp("zoo"), reranker, kept_models) as running:
        yield running


@pytest.fixture(scope="session")
def ask(zoo: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """What came of a call by a driver, each of which runs once."""

    @cache
    def answers(driver: str, group: str) -> dict[str, Outcome]:
        return drive(driver, group, zoo.url, scratch(tmp_path_factory, driver))

    def ask(client: str, call: str) -> Outcome:
        return answers(*driver_and_group(client))[call]

    return ask


@pytest.fixture(scope="session")
def oracle() -> Any:
    """sentence-transformers with the embedded model: what is plain and wrong would be wrong for all alike."""
    return load_reference(locate_model().directory)


@pytest.fixture(scope="session")
def rows(zoo: LiveServer, oracle: Any) -> FloatArray:
    """The plain floats of `TEXTS`, which are the oracle's."""
    found = embed(zoo.url, TEXTS, model=EMBEDDER)
    np.testing.assert_allclose(found, oracle.encode(TEXTS), rtol=0, atol=TOLERANCE)
    return found


@pytest.fixture(scope="session")
def single_rows(zoo: LiveServer, rows: FloatArray) -> FloatArray:
    """The same, each text in a request of its own: a product of fewer rows is rounded in another order."""
    found = np.concatenate([embed(zoo.url, [text], model=EMBEDDER) for text in TEXTS])
    np.testing.assert_allclose(found, rows, rtol=0, atol=TOLERANCE)
    return found


@pytest.fixture(scope="session")
def ranking(zoo: LiveServer, reranker: Path) -> list[list[float]]:
    """Places and scores of `DOCUMENTS`, the best first, which are the oracle's."""
    answer = post(f"{zoo.url}/rerank", {"model": RERANKER, "query": QUERY, "documents": DOCUMENTS})
    found = [[entry["index"], entry["relevance_score"]] for entry in answer["results"]]
    ranked = load_reference(reranker, "CrossEncoder").rank(QUERY, DOCUMENTS)
    expected = [[entry["corpus_id"], entry["score"]] for entry in ranked]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    return found


@pytest.fixture(scope="session")
def tokens(oracle: Any) -> int:
    """How many tokens the oracle reads in `TEXTS`."""
    count: int = oracle.ask("tokens", lambda model: sum(map(len, model.tokenizer(TEXTS)["input_ids"])))
    return count


def scratch(factory: pytest.TempPathFactory, driver: str) -> Path:
    """A folder for what a client caches."""
    return factory.mktemp(driver)
