"""What npm packages get besides plain rows and scores. `test_packages.py` has the tables of those."""

import base64
from typing import Any

import numpy as np
import pytest

from clients.inputs import CLASSIFIER, DOCUMENTS, EMBEDDER, HARD_TEXT, QUERY, RERANKER, TEXTS
from support.client_packages import Ask
from support.http_server import DIM
from support.plain_http import embed, post
from support.server import LiveServer
from vecmill.values.embeddings import OutputDtype

pytestmark = pytest.mark.full


def plain_rows(server: LiveServer, kind: str) -> Any:
    """The plain rows of `TEXTS` in so many bits."""
    return embed(server.url, TEXTS, model=EMBEDDER, output_dtype=kind)


def test_cohere_gets_every_kind_of_row_at_once(ask: Ask, zoo: LiveServer) -> None:
    found = ask("cohere_ai@npm", "embed v2 in kinds").unwrap()
    for kind in OutputDtype:
        np.testing.assert_array_equal(np.array(found[kind], np.float32), plain_rows(zoo, kind))
    assert [len(row) for row in found["base64"]] == [len(base64.b64encode(bytes(4 * DIM)))] * len(TEXTS)


def test_cohere_gets_tokens_and_finds_the_models(ask: Ask) -> None:
    assert ask("cohere_ai@npm", "tokenize and join").unwrap() == HARD_TEXT
    assert ask("cohere_ai@npm", "models").unwrap() == [EMBEDDER, RERANKER, CLASSIFIER]


def test_voyage_gets_eight_bits(ask: Ask, zoo: LiveServer) -> None:
    found = ask("voyageai@npm", "embed as int8").unwrap()
    np.testing.assert_array_equal(np.array(found, np.float32), plain_rows(zoo, OutputDtype.INT8))


def test_hugging_face_gets_rows_before_the_model_normalises_them(ask: Ask, zoo: LiveServer) -> None:
    plain = post(f"{zoo.url}/embed", {"inputs": TEXTS, "normalize": False})
    assert ask("huggingface_inference@npm", "embed raw").unwrap() == plain
    assert np.abs(np.linalg.norm(plain, axis=1) - 1).min() > 0.5


def test_hugging_face_compares_sentences(ask: Ask, zoo: LiveServer) -> None:
    query, *documents = embed(zoo.url, [QUERY, *DOCUMENTS], model=EMBEDDER)
    found = ask("huggingface_inference@npm", "similarity").unwrap()
    np.testing.assert_allclose(found, np.stack(documents) @ query, rtol=0, atol=1e-6)


def test_hugging_face_gets_labels(ask: Ask, zoo: LiveServer) -> None:
    (expected,) = post(f"{zoo.url}/predict", {"model": CLASSIFIER, "inputs": [[TEXTS[0]]]})
    assert ask("huggingface_inference@npm", "classify").unwrap() == expected
    assert ask("huggingface_inference@npm", "best label").unwrap() == expected[:1]


def test_an_index_of_llamaindex_finds_the_nearest_documents(ask: Ask, zoo: LiveServer) -> None:
    query, *documents = embed(zoo.url, [QUERY, *DOCUMENTS], model=EMBEDDER)
    scores = np.stack(documents) @ query
    found = ask("llamaindex@npm", "retrieve").unwrap()
    assert [place for place, _ in found] == list(np.argsort(-scores))
    np.testing.assert_allclose([score for _, score in found], sorted(scores, reverse=True), rtol=0, atol=1e-6)
