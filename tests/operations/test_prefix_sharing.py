"""Requests whose texts begin with the same tokens: large calls, bounded memory, and a forecast that knows."""

import json
from pathlib import Path

import numpy as np
import pytest

from support.task_models import save_causal
from vecmill import Embed, MillConfig, SyncMill
from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.prefixes import MAX_SLOTS, SHARED_PARTS
from vecmill.directory_layouts import describe_model
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.models import Task, locate_model
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings

LONGEST = 4_096
SAME = 1e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "judge"
    save_causal(folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": LONGEST}))
    return folder


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """The batches that the engine is called with."""
    called: list[Batch] = []
    run = OnnxEngine.run

    def record(self: OnnxEngine, batch: Batch, *, width: int) -> Embeddings:
        called.append(batch)
        return run(self, batch, width=width)

    monkeypatch.setattr(OnnxEngine, "run", record)
    return called


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prepared")


def draw(count: int, *, seed: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(5, 600, count).tolist())


def embed(folder: Path, cache_dir: Path, texts: list[tuple[int, ...]]) -> None:
    """Embed `texts` as one request, and compare a few of the rows with those of the texts alone."""
    description = describe_model(locate_model(folder), Task.EMBED)
    with SyncMill(description, MillConfig(cache_dir=cache_dir)) as mill:
        together = mill.run(Embed(tuple(texts))).embeddings
        for number in (0, len(texts) // 2, -1):
            alone = mill.run(Embed((texts[number],))).embeddings[0]
            assert np.abs(alone - together[number]).max() <= SAME


@pytest.mark.promise("same-in-any-batch")
def test_a_thousand_texts_that_share_nothing(folder: Path, cache_dir: Path, batches: list[Batch]) -> None:
    embed(folder, cache_dir, [draw(20, seed=number) for number in range(1_000)])
    assert sum(map(len, batches)) >= 1_000
    # A call is at most twice as large as the first size of batches.
    assert max(len(batch.token_ids) for batch in batches) <= 2 * LONG_TEXT_TOKENS


def test_a_thousand_short_texts_with_a_long_prefix_do_not_fill_the_memory(
    folder: Path, cache_dir: Path, batches: list[Batch]
) -> None:
    prefix = draw(450, seed=0)
    embed(folder, cache_dir, [prefix + draw(2, seed=number) for number in range(1_000)])
    slots = max(len(batch) * int(batch.lengths.max()) for batch in batches)
    assert 10 * LONG_TEXT_TOKENS < slots <= MAX_SLOTS * SHARED_PARTS * len(prefix)


def test_texts_that_are_computed_alone_are_not_predicted_to_share(
    folder: Path, cache_dir: Path, batches: list[Batch]
) -> None:
    """Each of them takes its whole time: with a shared prefix all of them would be one long call."""
    prefix = draw(2_000, seed=0)
    embed(folder, cache_dir, [prefix + draw(20, seed=number) for number in range(5)])
    assert [len(batch) for batch in batches if is_long(batch)] == [1] * 8


def is_long(batch: Batch) -> bool:
    return int(batch.lengths.max()) > LONG_TEXT_TOKENS


def test_a_request_is_not_refused_as_if_its_prefix_were_computed_for_each_text(
    folder: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is guessed before the texts are tokenised counts the query once a call, as the prediction does."""
    guessed: list[int] = []
    likely_costs_s = Dispatcher.likely_costs_s

    def record(self: Dispatcher, likely_tokens: list[int]) -> list[float]:
        guessed.append(sum(likely_tokens))
        return likely_costs_s(self, likely_tokens)

    monkeypatch.setattr(Dispatcher, "likely_costs_s", record)
    description = describe_model(locate_model(folder), Task.RERANK)
    query, documents = "which one is it " * 50, [f"the {number}th one " * 5 for number in range(40)]
    with SyncMill(description, MillConfig(cache_dir=cache_dir)) as mill:
        mill.rerank(query, documents)
        mill.rerank([f"{query}?"] * 40, documents)
    common, own = guessed[-2:]
    assert 0 < common < own / 8
