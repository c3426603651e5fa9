"""The published tables: their points, inputs and ratios, on results that are given and on small runs."""

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.classifier_inputs import Inputs, answer_texts, make_inputs, make_texts, save_classifier
from bench.generator import predict_target, run_closed_loop, send_requests
from bench.processors import count_physical_cores, list_processors, pinned
from bench.published import bulk, endpoint, grid, ladder
from bench.published.articles import BULK_S, BULK_TEXTS, BULK_TOKENS, ENDPOINT, GRID_BATCHES, GRID_LENGTHS
from bench.published.bulk_peers import infinity_program
from bench.published.grid import PIPELINE, Grid, Latencies, PinnedPipeline, Point, list_points
from bench.published.report import Report, ahead, draw_plot, spread
from bench.published.servers import (
    EXACT,
    FASTAPI,
    GUNICORN,
    FastApiOptions,
    fastapi_server,
    request_body,
    start_vecmill,
    write_requests,
)
from support.server import LiveServer
from support.texts import medium_texts, short_texts
from vecmill.errors import ServerFailed
from vecmill_server.bench.load_results import BenchLoad, LoadResult, summarise_latencies

SEED = 4
# Sizes of tiny models, by architecture.
TINY: dict[str, dict[str, int]] = {
    "DistilBert": {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 32},
    "Bert": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
    },
}
TINY["Roberta"] = TINY["Bert"] | {"max_position_embeddings": 34}


def result(*latencies_s: float) -> LoadResult:
    """What the generator says of one client with these latencies."""
    times_s = summarise_latencies(latencies_s)
    statuses = {200: len(latencies_s)}
    return LoadResult(BenchLoad("file", 1, clients=1), sum(latencies_s), statuses, 0.1, times_s)


def of_rate(rate: float) -> Latencies:
    """A round in which each request took equally long."""
    return Latencies(summarise_latencies([1 / rate] * 3), 3)


# ------------------------------------------------------------------- what all have


def processors_of(folder: Path, cores: Sequence[tuple[int, int]]) -> Path:
    """The system's files for processors of these packages and cores."""
    for number, (package, core) in enumerate(cores):
        topology = folder / f"cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text(f"{core}\n")
    return folder


def test_each_physical_core_comes_before_the_siblings(tmp_path: Path) -> None:
    system = processors_of(tmp_path, [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0)])
    assert list_processors(range(6), system) == [0, 2, 4, 1, 3, 5]
    assert list_processors([1, 2, 3], system) == [1, 2, 3]
    assert count_physical_cores([0, 2, 4], system) == 3
    assert count_physical_cores([0, 1, 2, 3], system) == 2
    assert list_processors([0, 1], tmp_path / "none") == [0, 1]
    assert pinned([0, 2]) == ["taskset", "--cpu-list", "0,2"]


def test_ratios_above_one_are_asked_of_vecmill() -> None:
    assert ahead("a", [0.9, 1.1, 1.2]).holds
    assert not ahead("a", [0.9, 0.9, 1.2]).holds
    assert spread([3.0, 1.0, 2.0]) == "2.0 (1.0-3.0)"
    assert spread([1.25], 2) == "1.25"
    assert spread([]) == "not measured"


def test_requests_of_several_texts_are_no_pairs(tmp_path: Path) -> None:
    file = write_requests(tmp_path / "bodies", [["a"], ["b", "c"]])
    assert [json.loads(line) for line in file.read_text("utf-8").splitlines()] == [
        {"inputs": "a"},
        {"inputs": [["b"], ["c"]]},
    ]


def test_a_command_fails_where_vecmill_is_not_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.published.report.draw_plot", lambda file, draw: None)
    monkeypatch.setattr("bench.published.report.ROOT", tmp_path)
    monkeypatch.setattr("bench.published.report.FOLDER", tmp_path)
    monkeypatch.setattr("bench.report.FOLDER", tmp_path)
    figures = [ahead("a", [1.5]), ahead("b", [0.5])]
    statuses = [
        Report("name", "Title", "The page.", part, {}, lambda axes: None).finish()
        for part in (figures, figures[:1])
    ]
    assert statuses == [1, 0]
    assert "ahead in 1 of 2 comparisons\nnot ahead: b: 0.500" in capsys.readouterr().out
    assert "# Title" in (tmp_path / "name.md").read_text("utf-8")
    assert len(json.loads((tmp_path / "name.json").read_text("utf-8"))["figures"]) == 1


# ------------------------------------------------------------------- the grid


def test_the_grid_has_192_points_and_fewer_are_spread_over_it() -> None:
    points = list_points((1, 2, 4, 8))
    assert len(set(points)) == 192
    assert len(list_points((1, 2))) == 96
    few = list_points((1, 2), 12)
    assert few == sorted(set(few))
    assert len(few) == 12
    assert {point.cores for point in few} == {1, 2}
    assert {point.tokens for point in few} == set(GRID_LENGTHS)
    assert {point.batch for point in few} == set(GRID_BATCHES)


def test_the_points_are_beside_the_published_ones() -> None:
    results = {
        Point(2, 8, 1): {
            PIPELINE: [of_rate(50), of_rate(100)],
            "vecmill onnx fp32": [of_rate(500), of_rate(100)],
        },
        Point(2, 8, 2): {PIPELINE: [of_rate(50)]},
    }
    *_, one, two = grid.write_points(results).splitlines()
    # Three requests are enough for a median, and too few for p99.
    assert one == "| 2 | 8 | 1 | 75.0 | 300.0 | 5.50 | 6.0, - | 248 | 49 | 5.06 |"
    assert two == "| 2 | 8 | 2 | 50.0 | not measured | - | - | - | - | - |"
    assert len(grid.write_latencies(results).splitlines()) == 2 + 3
    figures = {figure.name: figure for figure in grid.figures_of(results)}
    assert "2 cores, 8 tokens, batch 1: pipeline, p50" in figures
    assert "2 cores, 8 tokens, batch 1: pipeline, p99" not in figures
    ratio = figures["2 cores, 8 tokens, batch 1: vecmill onnx fp32 / pipeline"]
    assert ratio.values == pytest.approx((10, 1))
    assert "2 of 192 points" in grid.describe([0], [2], results)
    assert "ahead in 1 of them" in grid.describe([0], [2], results)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A tiny DistilBERT, and texts of 8 tokens for it."""
    model = save_classifier(tmp_path_factory.mktemp("tiny") / "model", seed=SEED, sizes=TINY["DistilBert"])
    return make_inputs(model, {8: make_texts(SEED, 8, 4)})


def test_a_point_gets_all_texts_in_batches() -> None:
    found = Grid(Path("folder"), Inputs(Path("model"), {8: ["a", "b", "c", "d"]}, {}), [0], 1, [EXACT])
    assert [len(texts) for texts in found.groups(Point(1, 8, 2))] == [2, 2]
    assert [len(texts) for texts in found.groups(Point(1, 8, 32))] == [4]


# ------------------------------------------------------------------- the steps


def test_the_steps_end_with_a_client_for_each_core() -> None:
    steps = ladder.list_steps(4)
    assert [step.clients for step in steps] == [2, 2, 2, 2, 4]
    assert [step.options.workers for step in steps] == [1, 4, 4, 4, 4]
    assert [step.options.is_quantized for step in steps] == [False, False, False, True, True]
    assert all(step.plans[-1] == EXACT for step in steps)


def test_the_steps_have_both_servers_and_their_ratio() -> None:
    first, second, *_ = ladder.list_steps(2)
    measured = ladder.Found(first, [result(0.1, 0.1), result(0.2, 0.2)], [result(0.05), result(0.05)], EXACT)
    alone = ladder.Found(second, [], [result(0.05)], EXACT)
    *_, one, two = ladder.write_steps([measured, alone]).splitlines()
    assert "| 7.5 (5.0-10.0) | 150.0 (100.0-200.0) | 150.0 (100.0-200.0) | onnx fp32 | 20.0" in one
    assert one.endswith("| 3.00 (2.00-4.00) |")
    assert "| not measured | not measured | not measured | onnx fp32 |" in two
    assert two.endswith("| - |")
    ratios = [figure for figure in ladder.figures_of([measured, alone]) if figure.bound is not None]
    assert [figure.values for figure in ratios] == [pytest.approx((2, 4))]


def test_the_app_of_gunicorn_names_model_and_options() -> None:
    app = FastApiOptions(workers=2, is_tuned=True).app(Path("/a/b"))
    assert app == "fastapi_server:make_app('/a/b', is_tuned=True, is_quantized=False)"


# ------------------------------------------------------------------- the endpoint


def test_the_latencies_are_written_as_the_article_writes_them() -> None:
    assert endpoint.describe([result(0.1, 0.3)]) == "200.0 ± 100.0 (0 s)"
    assert endpoint.describe_published(ENDPOINT[2]) == "156 ± 51 (158 s)"
    assert endpoint.describe_published(ENDPOINT[1]) == "296"
    ours = "vecmill onnx fp32"
    rows = [endpoint.Row(2, {FASTAPI: [result(0.3)], ours: [result(0.1)]}), endpoint.Row(4)]
    *_, two, four = endpoint.write_rows(rows).splitlines()
    assert two == "| 2 | 156 ± 51 (158 s) | - | 300.0 ± 0.0 (0 s) | 100.0 ± 0.0 (0 s) | 3.00 |"
    assert four == "| 4 | 80 ± 30 (80 s) | 200 | not measured | not measured | - |"
    [ratio] = [figure for figure in endpoint.figures_of(rows) if figure.bound is not None]
    assert ratio.values == pytest.approx((3,))


# ------------------------------------------------------------------- bulk requests


def test_bulk_requests_have_the_published_number_of_tokens() -> None:
    assert abs(BULK_TEXTS * bulk.TOKENS - BULK_TOKENS) < BULK_TEXTS
    work = bulk.make_work(Path("model"), requests=2, texts=3)
    assert [len(texts) for texts in work.requests] == [3, 3]
    assert len({text for texts in work.requests for text in texts}) == 6


def fake_rows() -> list[bulk.Row]:
    """Rows that take so many seconds each, without a server."""

    def run(seconds: float, value: float) -> Callable[[bulk.Work, Path], bulk.Outcome]:
        return lambda work, folder: bulk.Outcome(seconds, np.full((1, 2), value, np.float32))

    return [
        bulk.Row(bulk.REFERENCE, run(30.0, 0.5)),
        bulk.Row("vecmill onnx fp32", run(10.0, 0.5), is_ours=True),
        bulk.Row("vecmill onnx int8", run(5.0, 0.501), is_ours=True),
        bulk.Row("infinity-optimum-int8", run(20.0, 0.51)),
        bulk.Row("TEI (candle)"),
    ]


def test_bulk_rows_are_compared_with_vecmill_in_their_precision(tmp_path: Path) -> None:
    rows = fake_rows()
    bulk.measure(rows, bulk.Work(Path("model"), [["a"]]), tmp_path, rounds=2)
    assert [row.seconds for row in rows[:2]] == [[30.0, 30.0], [10.0, 10.0]]
    assert bulk.ratios_to_ours(rows[0], rows) == (3.0, 3.0)
    assert bulk.ratios_to_ours(rows[3], rows) == (4.0, 4.0)
    lines = bulk.write_rows(rows, 10, 256).splitlines()[2:]
    assert lines[3] == (
        "| infinity-optimum-int8 | 20.0 (20.0-20.0) | 0.500 | 57472 | 1e-02 | 4.00 (4.00-4.00) | 100.49 |"
    )
    assert lines[4] == "| TEI (candle) | not measured | - | - | - | - | 1104.36 |"


def test_a_row_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    def fail(work: bulk.Work, folder: Path) -> bulk.Outcome:
        raise ServerFailed("127.0.0.1 does not answer\nas it should")

    rows = [*fake_rows()[:2], bulk.Row("one", fail), *fake_rows()[3:4]]
    bulk.measure(rows, bulk.Work(Path("model"), [["a"]]), tmp_path, rounds=2)
    assert rows[2].refusal == "as it should"
    assert [len(row.seconds) for row in rows] == [2, 2, 0, 2]
    rows[0].seconds.pop()  # as if it had failed in the second round
    assert bulk.ratios_to_ours(rows[0], rows) == (3.0,)


def test_infinity_runs_in_the_environment_of_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.published.bulk_peers.ROOT", tmp_path)
    monkeypatch.setattr("bench.published.bulk.FASTEMBED", tmp_path / "none")
    program = infinity_program("optimum")
    assert program == tmp_path / ".venv/peer-infinity-optimum/bin/infinity_emb"
    program.parent.mkdir(parents=True)
    program.touch()
    assert bulk.installed_peers().keys() == {"infinity-optimum-int8", "infinity-optimum (onnx)"}


def test_a_running_server_takes_part_by_its_url(server: LiveServer, tmp_path: Path) -> None:
    texts = short_texts(SEED, 6)
    work = bulk.Work(Path("model"), [texts[:3], texts[3:]])
    found = bulk.run_url(work, tmp_path, server.url)
    assert found.seconds > 0
    assert found.embeddings.shape == (3, 384)
    assert bulk.read_servers(["TEI (candle)=http://127.0.0.1:1"]) == {"TEI (candle)": "http://127.0.0.1:1"}
    named = {row.name: row for row in bulk.list_rows({"TEI (candle)": server.url, "other": server.url})}
    assert named.keys() > BULK_S.keys()
    assert named["TEI (candle)"].measure is not None
    assert named["other"].measure is not None


# ------------------------------------------------------------------- small runs


@pytest.mark.full
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
@pytest.mark.parametrize("architecture", TINY)
def test_vecmill_answers_like_the_pipeline_and_is_measured(architecture: str, tmp_path: Path) -> None:
    from contextlib import ExitStack

    model = save_classifier(
        tmp_path / "model", seed=SEED, architecture=architecture, sizes=TINY[architecture]
    )
    texts = make_texts(SEED, 8, 4)
    inputs = Inputs(model, {8: texts}, answer_texts(model, texts))
    with ExitStack() as stack:
        server = start_vecmill(stack, tmp_path / "served", inputs, EXACT, list_processors()[:1])
        bodies = write_requests(tmp_path / "bodies", [[text] for text in texts])
        target = predict_target(server.url)
        found = send_requests(target, bodies, connections=1, requests=20, timeout_s=20)
        assert found.statuses == {200: 20}
        assert found.percentiles_s["stdev"] > 0
        assert grid.time_request(server.url, texts) > 0
        loop = run_closed_loop(server.url, bodies, connections=2, duration_s=1, route="/predict")
        assert loop.percentiles_s["stdev"] > 0


@pytest.mark.full
def test_the_pipeline_runs_on_its_processors_with_batches(tiny: Inputs) -> None:
    from bench.rigs import remote_process

    with remote_process(PinnedPipeline, tiny.model, list_processors()[:1]) as ask:
        assert len(ask("latencies_s", [tiny.texts[8]], 0.01)) >= grid.LEAST_CALLS


@pytest.mark.full
@pytest.mark.skipif(not GUNICORN.exists(), reason="make bench-ladder installs FastAPI and gunicorn")
@pytest.mark.parametrize(
    "options", [FastApiOptions(), FastApiOptions(2, True), FastApiOptions(2, True, True)]
)
def test_transformers_behind_fastapi_answers_like_the_pipeline(
    options: FastApiOptions, tiny: Inputs, tmp_path: Path
) -> None:
    with fastapi_server(tmp_path, tiny, options, list_processors()) as url:
        bodies = write_requests(tmp_path / "bodies", [[text] for text in tiny.texts[8]])
        found = send_requests(predict_target(url), bodies, connections=1, requests=5, timeout_s=20)
    assert found.statuses == {200: 5}


@pytest.mark.full
def test_each_table_has_a_plot(tmp_path: Path) -> None:
    rows = fake_rows()
    bulk.measure(rows, bulk.Work(Path("model"), [["a"]]), tmp_path, rounds=1)
    step = ladder.Found(ladder.list_steps(2)[0], [], [result(0.05)], EXACT)
    points = {Point(2, length, 1): {PIPELINE: [of_rate(50)], "a": [of_rate(99)]} for length in (8, 64)}
    draws: dict[str, Callable[[Any], None]] = {
        "bulk": partial(bulk.draw, rows, 10),
        "ladder": partial(ladder.draw, [step]),
        "grid": partial(grid.draw, points),
        "endpoint": partial(endpoint.draw, [endpoint.Row(2, {FASTAPI: [result(0.3)]})]),
    }
    for name, draw in draws.items():
        draw_plot(tmp_path / f"{name}.png", draw)
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_a_body_for_one_text_is_what_both_servers_take() -> None:
    [text] = medium_texts(SEED, 1)
    assert request_body([text]) == {"inputs": text}
