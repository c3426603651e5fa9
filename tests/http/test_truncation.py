"""Texts that are longer than the model reads are cut, and the response says how many."""

from typing import Any

import httpx
import pytest

from support.http_server import HttpServer
from vecmill.models import Task

LONG, SHORT = "cat " * 300, "cat"
EMBED, RERANK = f"model/{Task.EMBED}", f"model/{Task.RERANK}"


@pytest.mark.parametrize(
    ("path", "body", "count"),
    [
        ("/v1/embeddings", {"input": [LONG, SHORT, LONG], "model": EMBED}, 2),
        ("/v1/embeddings", {"input": SHORT, "model": EMBED}, None),
        ("/v1/embeddings", {"input": "cat " * 254, "model": EMBED}, None),
        ("/embed", {"inputs": [LONG, SHORT], "model": EMBED}, 1),
        ("/v2/embed", {"texts": [LONG], "model": EMBED}, 1),
        ("/api/embed", {"input": [LONG], "model": EMBED}, 1),
        ("/rerank", {"query": SHORT, "documents": [LONG, SHORT], "model": RERANK}, 1),
        (
            "/rerank",
            {"query": SHORT, "documents": ["a cat", SHORT], "max_tokens_per_doc": 1, "model": RERANK},
            1,
        ),
        ("/predict", {"inputs": [[LONG], [SHORT]], "model": f"model/{Task.CLASSIFY}"}, 1),
        ("/predict", {"inputs": LONG, "model": f"model/{Task.CLASSIFY_TOKENS}"}, 1),
        ("/vertex", {"instances": [{"inputs": [LONG]}, {"inputs": LONG}], "model": EMBED}, 2),
        ("/tokenize", {"prompt": LONG, "model": EMBED}, None),
    ],
)
def test_the_header_has_the_number_of_inputs_that_were_cut(
    every_task: HttpServer, path: str, body: dict[str, Any], count: int | None
) -> None:
    before = every_task.metric("vecmill_texts_truncated_total", model=body["model"])
    answer = every_task.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers.get("x-truncated-inputs") == (None if count is None else str(count))
    assert len(answer.headers.get("x-truncated", "").split(",")) == (count or 1)
    assert every_task.metric("vecmill_texts_truncated_total", model=body["model"]) == before + (count or 0)


def test_what_is_not_cut_has_no_header(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"input": LONG, "truncate": False})
    assert answer.status_code == 400
    assert "x-truncated-inputs" not in answer.headers
