"""What every engine promises, whatever it runs on."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from support.rows_check import assert_same_rows
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES, load_engine
from vecmill.engines.base import Engine
from vecmill.models import locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan

SEED = 11
CORES = 2
VOCABULARY = 500

Open = Callable[[], Engine]


@pytest.fixture(scope="module", params=sorted(ENGINES))
def open_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kept_models: Path
) -> Open:
    entry = ENGINES[request.param]
    if not entry.is_installed:
        pytest.skip(f"{request.param} is not installed: pip install 'vecmill[{entry.extra}]'")
    directory = save_tiny_bert(tmp_path_factory.mktemp("model"), TinyBert())
    description = describe_model(locate_model(directory))
    cache_dir = kept_models
    if request.param == "torch-compile":
        cache_dir = request.getfixturevalue("kept_programs")
    return lambda: load_engine(description, EnginePlan(request.param), cores=CORES, cache_dir=cache_dir)


@pytest.fixture(scope="module")
def engine(open_engine: Open) -> Iterator[Engine]:
    engine = open_engine()
    yield engine
    engine.close()


def sequences_of(lengths: list[int], seed: int = SEED) -> list[TokenSequence]:
    random = np.random.default_rng(seed)
    return [TokenSequence.of(random.integers(5, VOCABULARY, length).tolist()) for length in lengths]


def various_lengths(engine: Engine, count: int) -> list[int]:
    random = np.random.default_rng(SEED)
    return [1, engine.info.max_tokens, *random.integers(1, engine.info.max_tokens + 1, count - 2).tolist()]


def test_info_is_constant_and_sensible(engine: Engine) -> None:
    info = engine.info
    assert info == engine.info
    assert info.dim > 0
    assert info.max_tokens > 0
    assert info.lane_widths[0] == 1
    assert list(info.lane_widths) == sorted(set(info.lane_widths))
    assert info.lane_widths[-1] <= CORES


@pytest.mark.promise("finite-embeddings")
@pytest.mark.parametrize("count", [1, 2, 7, 200])
def test_one_finite_float32_row_a_text(engine: Engine, count: int) -> None:
    batch = Batch.of(sequences_of(various_lengths(engine, max(count, 2))[:count]))
    for width in engine.info.lane_widths:
        rows = engine.run(batch, width=width)
        assert len(rows) == count
        assert rows.values.shape == (count, engine.info.dim)
        assert rows.values.dtype == np.float32
        assert np.isfinite(rows.values).all()
        assert rows.computed_tokens >= len(batch.token_ids)


@pytest.mark.promise("same-in-any-batch")
def test_a_row_is_the_same_alone_and_in_any_batch_on_any_width(engine: Engine) -> None:
    sequences = sequences_of(various_lengths(engine, 40))
    alone = np.stack([engine.run(Batch.of([one]), width=1).of_text(0)[0] for one in sequences])
    for width in engine.info.lane_widths:
        assert_same_rows(
            lambda batch, width=width: engine.run(batch, width=width),  # type: ignore[misc]
            sequences,
            alone,
            tolerance=1e-6,
            seed=SEED,
        )


def test_rows_of_different_texts_differ(engine: Engine) -> None:
    rows = engine.run(Batch.of(sequences_of([5] * 20)), width=1).values
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=-1) + np.eye(len(rows))
    assert distances.min() > 1e-3


def test_the_batch_is_left_as_it_was(engine: Engine) -> None:
    batch = Batch.of(sequences_of([3, 9, 1]))
    before = [values.copy() for values in (batch.token_ids, batch.token_type_ids, batch.offsets)]
    engine.run(batch, width=1)
    after = (batch.token_ids, batch.token_type_ids, batch.offsets)
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def test_lanes_may_call_at_once(engine: Engine) -> None:
    batches = [Batch.of(sequences_of(various_lengths(engine, 6), seed)) for seed in range(2)]
    expected = [engine.run(batch, width=1).values for batch in batches]
    differences: list[float] = []

    def call(which: int) -> None:
        rows = (engine.run(batches[which], width=1).values for _ in range(30))
        differences.append(max(float(np.abs(row - expected[which]).max()) for row in rows))

    threads = [threading.Thread(target=call, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(differences) == 2
    assert max(differences) <= 1e-6


def test_new_sessions_give_the_same_rows_while_calls_run(open_engine: Open) -> None:
    engine = open_engine()
    batch = Batch.of(sequences_of([3, 9, 40]))
    expected = {width: engine.run(batch, width=width).values for width in engine.info.lane_widths}
    done = threading.Event()
    differences: list[float] = []

    def call() -> None:
        while not done.is_set():
            differences.append(float(np.abs(engine.run(batch, width=1).values - expected[1]).max()))

    thread = threading.Thread(target=call)
    thread.start()
    for _ in range(2):
        engine.renew()
        for width, rows in expected.items():
            assert np.allclose(engine.run(batch, width=width).values, rows, atol=1e-6)
    done.set()
    thread.join()
    engine.close()
    assert differences
    assert max(differences) <= 1e-6


def test_warm_up_measures_a_cost(engine: Engine) -> None:
    cost = engine.warm_up()
    assert cost.fixed_s >= 0
    assert cost.per_token_s > 0
    assert cost.seconds(100) > cost.seconds(1)


def test_closing_twice_is_fine(open_engine: Open) -> None:
    engine = open_engine()
    engine.run(Batch.of(sequences_of([4])), width=1)
    engine.close()
    engine.close()


def test_loading_again_gives_the_same_rows(open_engine: Open, engine: Engine) -> None:
    batch = Batch.of(sequences_of([4, 8]))
    again = open_engine()
    assert np.allclose(again.run(batch, width=1).values, engine.run(batch, width=1).values, atol=1e-6)
    again.close()
