"""What npm packages get besides plain rows and scores. `test_packages.py` has the tables of those."""

import numpy as np
import pytest

from clients.inputs import CLASSIFIER, DOCUMENTS, EMBEDDER, HARD_TEXT, QUERY, RERANKER, TEXTS
from support.client_packages import Ask
from support.plain_http import embed, post
from support.server import LiveServer

pytestmark = pytest.mark.full


def test_cohere_gets_tokens_and_finds_the_models(ask: Ask) -> None:
    assert ask("cohere_ai@npm", "tokenize and join").unwrap() == HARD_TEXT
    assert ask("cohere_ai@npm", "models").unwrap() == [EMBEDDER, RERANKER, CLASSIFIER]


def test_hugging_face_gets_rows_before_the_model_normalises_them(ask: Ask, zoo: LiveServer) -> None:
    plain = post(f"{zoo.url}/embed", {"inputs": TEXTS, "normalize": False})
    assert ask("huggingface_inference@npm", "embed raw").unwrap() == plain
    assert np.abs(np.linalg.norm(plain, axis=1) - 1).min() > 0.5


def test_an_index_of_llamaindex_finds_the_nearest_documents(ask: Ask, zoo: LiveServer) -> None:
    query, *documents = embed(zoo.url, [QUERY, *DOCUMENTS], model=EMBEDDER)
    scores = np.stack(documents) @ query
    found = ask("llamaindex@npm", "retrieve").unwrap()
    assert [place for place, _ in found] == list(np.argsort(-scores))
    np.testing.assert_allclose([score for _, score in found], sorted(scores, reverse=True), rtol=0, atol=1e-6)
