"""A good model answers, rightly and in time, beside hostile directories and hostile texts.

Each directory is a good model when the server starts, and is spoiled before its first request, so that it is
loaded beside the good one. Directories and texts are those of a seed, which is their number.
"""

import json
import shutil
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.hostile_directories import KINDS, hostile_text, spoil_directory
from support.livez_gap import livez_gap
from support.server import LiveServer, live_server
from support.tiny_models import TinyBert, save_tiny_bert

# Patterns that backtrack try this for a tenth of a second.
LONG_WORD = "a" * 22 + "!"
# Beyond the longest gap of an idle process beside the server.
LONGEST_GAP_S = 0.25
GOOD_TEXTS = ("a text", "another text that is a little longer", "")
TOLERANCE = 1e-5
ROUTES = ("embeddings", "tokens", "chunks", "rerank")

# Seeds of directories, 500 in all, and how many of them the probes watch together.
ROUND = 50
# One of each kind, with the longest lists of values and of tensors.
FEW = pytest.param(range(9 * len(KINDS), 10 * len(KINDS)), len(KINDS), id="few")
ALL = [
    pytest.param(range(first, first + ROUND), 10, id=f"{first} and more", marks=pytest.mark.full)
    for first in range(0, 500, ROUND)
]
FEW_TEXTS = pytest.param(24, 30_000, 24, id="few")
ALL_TEXTS = pytest.param(100, 1_000_000, 1, id="all", marks=pytest.mark.full)


class GoodModel:
    """The good model of a server, whose vectors are compared with its first ones."""

    def __init__(self, server: LiveServer) -> None:
        self._url = server.url
        self._first = self._embed()

    def check(self) -> None:
        """Fail unless the model gives its vectors."""
        assert np.allclose(self._embed(), self._first, atol=TOLERANCE)

    def _embed(self) -> Any:
        status, answer = post(self._url, "/v1/embeddings", {"model": "good", "input": GOOD_TEXTS})
        assert status == 200, answer
        return np.array([row["embedding"] for row in json.loads(answer)["data"]])


def post(url: str, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    content = json.dumps(body).encode()
    request = urllib.request.Request(f"{url}{path}", content, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@contextmanager
def serve(folder: Path, names: Sequence[str]) -> Iterator[LiveServer]:
    """Serve the models of `folder`, each of which is loaded at its first request."""
    models = [str(folder / "models" / name) for name in names]
    options = ("--memory-budget-mib", "4000", "--timeout-s", "60", "--no-access-log")
    with live_server(folder, arguments=(*models, *options)) as server:
        yield server


@contextmanager
def watched(server: LiveServer, cases: Sequence[object]) -> Iterator[None]:
    """Fail if `/livez` is late while these cases are sent."""
    with livez_gap(int(server.url.rpartition(":")[2]), server.process.pid) as gap:
        yield
    print(f"{gap.own_s:.3f} s (with other work {gap.beyond_control_s:.3f} s) late: {cases}")
    assert gap.own_s < LONGEST_GAP_S, cases


@pytest.mark.linux
@pytest.mark.promise("loop-responsive", "model-directories")
@pytest.mark.parametrize(("seeds", "together"), [FEW, *ALL])
def test_a_good_model_answers_while_hostile_directories_are_loaded(
    tmp_path: Path, seeds: range, together: int
) -> None:
    models = tmp_path / "models"
    good = save_tiny_bert(models / "good", TinyBert())
    names = {seed: f"hostile-{seed}" for seed in seeds}
    for name in ("other", *names.values()):
        shutil.copytree(good, models / name)
    with serve(tmp_path, ("good", "other", *names.values())) as server:
        model = GoodModel(server)
        post(server.url, "/v1/embeddings", {"model": "other", "input": "a"})  # imports what a load needs
        for first in range(0, len(seeds), together):
            some = seeds[first : first + together]
            kinds = [spoil_directory(models / names[seed], seed) for seed in some]
            with watched(server, [*zip(some, kinds, strict=True)]):
                for seed in some:
                    body = {"model": names[seed], "input": LONG_WORD}
                    status, answer = post(server.url, "/v1/embeddings", body)
                    assert status in (200, 400, 503), (seed, answer)
                    model.check()
        assert server.process.poll() is None


def request_of(route: str, text: str) -> tuple[str, dict[str, Any]]:
    match route:
        case "embeddings":
            return "/v1/embeddings", {"model": "good", "input": [text, "a"]}
        case "tokens":
            return "/tokenize", {"model": "good", "inputs": text}
        case "chunks":
            chunking = {"mode": "pooled", "tokens": 40}
            return "/v1/embeddings", {"model": "good", "input": text, "chunking": chunking}
    return "/rerank", {"model": "good", "query": text[:2_000], "texts": [text, "a"]}


@pytest.mark.linux
@pytest.mark.promise("loop-responsive", "bounded-input")
@pytest.mark.parametrize(("count", "longest", "together"), [FEW_TEXTS, ALL_TEXTS])
def test_a_good_model_answers_while_hostile_texts_are_read(
    tmp_path: Path, count: int, longest: int, together: int
) -> None:
    save_tiny_bert(tmp_path / "models/good", TinyBert())
    statuses: Counter[int] = Counter()
    with serve(tmp_path, ("good",)) as server, ThreadPoolExecutor(2) as pool:
        model = GoodModel(server)
        for first in range(0, count, together):
            seeds = range(first, min(first + together, count))
            with watched(server, seeds):
                for seed in seeds:
                    path, body = request_of(ROUTES[seed % len(ROUTES)], hostile_text(seed, longest))
                    running = pool.submit(post, server.url, path, body)
                    model.check()
                    status, answer = running.result()
                    assert status in (200, 400, 413, 422), (seed, answer[:300])
                    statuses[status] += 1
        assert server.process.poll() is None
    assert statuses[200] > count // 2
