"""Texts of a causal model that begin with the same tokens share work, and have the rows of the text alone."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.task_models import save_causal
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan
from vecmill.values.positions import Positions

SEED = 7
SAME = 1e-6
ENGINES = ("onnx", "openvino", "torch")


LFM2 = {"layer_types": ["conv", "full_attention", "conv", "conv"], "num_hidden_layers": 4, "conv_L_cache": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "judge"
    save_causal(folder)
    return folder


@pytest.fixture(scope="module")
def convolving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers read the tokens before each token, in no order of the positions."""
    folder = tmp_path_factory.mktemp("models") / "convolving"
    save_causal(folder, "Lfm2", **LFM2)
    return folder


def draw_texts(most_ids: int) -> list[TokenSequence]:
    """Texts with a shared prefix, some of which have more in common, and texts without it.

    One of them is a long text, which engines may compute by itself.
    """
    random = np.random.default_rng(SEED)

    def draw(count: int) -> list[int]:
        return [int(number) for number in random.integers(5, most_ids, count)]

    query, document = draw(60), draw(20)
    texts = [query + draw(count) for count in (1, 7, 25, 40)]
    texts += [query + document + draw(count) for count in (1, 9)]
    texts += [query, query + document, draw(1), draw(30), query[:30] + draw(LONG_TEXT_TOKENS)]
    return [TokenSequence.of(text) for text in texts]


def as_answered(row: FloatArray, task: Task) -> FloatArray:
    """Embeddings of unit length, and scores of logits."""
    answered = row / np.linalg.norm(row) if task is Task.EMBED else 1 / (1 + np.exp(-row))
    return answered.astype(np.float32)


@pytest.mark.promise("same-in-any-batch")
@pytest.mark.parametrize("task", [Task.RERANK, Task.EMBED])
@pytest.mark.parametrize("name", ENGINES)
def test_rows_are_those_of_the_texts_alone(folder: Path, tmp_path: Path, name: str, task: Task) -> None:
    compare_with_texts_alone(describe_model(locate_model(folder), task), tmp_path, name)


@pytest.mark.promise("same-in-any-batch")
@pytest.mark.parametrize("name", ENGINES)
def test_convolutions_read_the_tokens_of_their_own_text(convolving: Path, tmp_path: Path, name: str) -> None:
    compare_with_texts_alone(describe_model(locate_model(convolving), Task.EMBED), tmp_path, name)


def compare_with_texts_alone(description: ModelDescription, cache_dir: Path, name: str) -> None:
    assert description.shares_prefixes
    engine = load_engine(description, EnginePlan(name), cores=1, cache_dir=cache_dir)
    try:
        texts = draw_texts(description.vocab_size)
        batch = Batch.of(texts)
        positions = Positions.of(batch, shares_prefixes=True)
        assert len(positions) < 0.7 * len(batch.token_ids)
        together = engine.run(batch, width=1)
        for number, text in enumerate(texts):
            alone = engine.run(Batch.of([text]), width=1)
            difference = as_answered(together.of_text(number), description.task) - as_answered(
                alone.of_text(0), description.task
            )
            assert np.abs(difference).max() <= SAME, number
    finally:
        engine.close()


@pytest.mark.promise("same-in-any-batch")
@pytest.mark.parametrize("model", ["folder", "convolving"])
def test_random_groups_of_texts_have_the_rows_of_the_texts_alone(
    model: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Few ids, so that prefixes of any length are equal; lengths from one token to hundreds."""
    random = np.random.default_rng(SEED)
    description = describe_model(locate_model(request.getfixturevalue(model)), Task.EMBED)
    engine = load_engine(description, EnginePlan("onnx"), cores=1, cache_dir=tmp_path)
    try:
        for _ in range(12):
            stems = [random.integers(5, 8, random.integers(1, 200)).tolist() for _ in range(3)]
            texts = [
                TokenSequence.of(
                    [
                        *stems[random.integers(3)][: random.integers(0, 200)],
                        *random.integers(5, 8, random.integers(1, 1 << random.integers(1, 7))).tolist(),
                    ]
                )
                for _ in range(random.integers(1, 20))
            ]
            together = engine.run(Batch.of(texts), width=1)
            for number, text in enumerate(texts):
                alone = engine.run(Batch.of([text]), width=1)
                assert np.abs(together.of_text(number) - alone.of_text(0)).max() <= SAME, number
    finally:
        engine.close()


@pytest.mark.promise("same-in-any-batch")
def test_more_equal_texts_than_tokens_have_the_row_of_one(folder: Path, tmp_path: Path) -> None:
    """Requests have no equal texts, but those of a model's own check may be, cut to its longest input."""
    description = describe_model(locate_model(folder), Task.EMBED)
    engine = load_engine(description, EnginePlan("onnx"), cores=1, cache_dir=tmp_path)
    try:
        text = TokenSequence.of([7, 8, 9])
        (alone,) = engine.run(Batch.of([text]), width=1).values
        together = engine.run(Batch.of([text] * 8), width=1).values
        assert np.abs(together - alone).max() <= SAME
    finally:
        engine.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"is_causal": False},
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}},
    ],
    ids=("later_tokens", "length"),
)
def test_a_model_whose_tokens_depend_on_later_ones_shares_nothing(
    settings: dict[str, object], tmp_path: Path
) -> None:
    """They attend to them, or have other positions in a longer text."""
    save_causal(tmp_path / "model")
    file = tmp_path / "model/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    assert not describe_model(locate_model(tmp_path / "model"), Task.EMBED).shares_prefixes


def test_an_exported_graph_shares_nothing(folder: Path) -> None:
    description = describe_model(locate_model(folder), Task.RERANK)
    assert not replace(description, weights_files=(folder / "model.onnx",)).shares_prefixes
