"""`vecmill optimize` on the embedded model, against trying everything, and then served.

make bench-optimize

First the command, as a person runs it. Then every plan that is accurate enough is measured, each several
times; the best few and the chosen one meet again in passes of their own, so that what is compared was not
picked by the same figures. Last the directory is served, by an environment without torch, and given the texts
that the report speaks of in one request: they all wait at once, as they did when they were measured.
"""

import math
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

from bench.program import SERVE_WITH_ENGINES, make_parser, start
from bench.report import Figure, at_least
from support.plain_http import embed
from support.server import live_server
from vecmill.commands.optimize.bench import WorkerBench
from vecmill.commands.optimize.candidates import by_loading
from vecmill.commands.optimize.choice import Goal, may_be_chosen, median_score
from vecmill.commands.optimize.measurements import Measurements
from vecmill.commands.optimize.output_directory import OptimizationResult
from vecmill.commands.optimize.run import (
    SAMPLE_TEXTS,
    OptimizeOptions,
    collect_context,
    optimize_model,
    write_worker_setup,
)
from vecmill.commands.optimize.search import CandidateFailed
from vecmill.serving_plan.plans import describe_plan
from vecmill.values.clock import monotonic
from vecmill.values.engine_plan import EnginePlan
from vecmill.values.sample_texts import sample_texts

LIMIT_S = 300.0
PASSES, FINAL_PASSES, FINALISTS = 2, 7, 3
REQUESTS = 5
PATIENCE_S = 3600.0


def search_all(
    optimize_options: OptimizeOptions, scratch: Path, chosen: EnginePlan
) -> tuple[Measurements, Measurements, int]:
    """Measure everything that is accurate enough, then the best few and `chosen` again.

    Returns what is known of all, of the finalists by their own passes, and how many plans there were.
    """
    found = collect_context(optimize_options)
    setup = write_worker_setup(found, optimize_options, scratch)
    with closing(WorkerBench(setup, scratch, limit_s=PATIENCE_S, clock=monotonic)) as bench:
        safe = found.space.safe_kinds[0]
        measured = Measurements(safe, {safe: bench.screen(safe)})
        for plan in found.space.kinds:
            if plan != safe:
                _admit(bench, measured, plan)
        kinds = [plan for plan in found.space.kinds if may_be_chosen(measured, optimize_options.goal, plan)]
        plans = list(chain.from_iterable(found.space.variants[kind] for kind in kinds))
        _measure(bench, measured, [plan for plan in plans if plan != safe], PASSES)
        best = sorted(plans, key=lambda plan: -median_score(measured, optimize_options.goal, plan))[
            :FINALISTS
        ]
        finals = Measurements(safe, dict(measured.screenings))
        _measure(bench, finals, list(dict.fromkeys([chosen, *best])), FINAL_PASSES)
    return measured, finals, len(plans)


def _admit(bench: WorkerBench, measured: Measurements, plan: EnginePlan) -> None:
    print(f"loading and checking {describe_plan(plan)}", flush=True)
    try:
        measured.screenings[plan] = bench.screen(plan)
    except CandidateFailed as failure:
        measured.failures[plan] = str(failure)


def _measure(bench: WorkerBench, measured: Measurements, plans: Sequence[EnginePlan], passes: int) -> None:
    groups = by_loading(plan for plan in plans if plan != measured.safe)
    for first in range(0, len(groups), bench.capacity):
        some = list(chain.from_iterable(groups[first : first + bench.capacity]))
        for _ in range(passes):
            measured.passes.append(bench.run_pass(len(measured.passes) + 1, some))
        print(
            f"measured {min(first + bench.capacity, len(groups))} of {len(groups)} loaded engines", flush=True
        )


def served_rates(directory: Path, command: Sequence[str], scratch: Path) -> list[float]:
    """Texts a second of the directory's server, for requests of all texts at once."""
    texts = sample_texts(SAMPLE_TEXTS)
    rates = []
    with live_server(scratch, arguments=[str(directory)], command=command, timeout_s=120) as server:
        embed(server.url, texts)
        for _ in range(REQUESTS):
            began = time.perf_counter()
            embed(server.url, texts)
            rates.append(len(texts) / (time.perf_counter() - began))
    return rates


def figures_of(
    optimization_result: OptimizationResult,
    took_s: float,
    measured: Measurements,
    finals: Measurements,
    rates: Sequence[float],
) -> list[Figure]:
    """What is promised: the time, how near the choice is to the best, and what serving reaches."""
    chosen, goal = optimization_result.choice.plan, optimization_result.goal
    candidates = [plan for plan in finals.plans if plan == finals.safe or finals.ratios(plan)]
    scores = {plan: median_score(finals, goal, plan) for plan in candidates}
    best = max(scores, key=scores.__getitem__)
    print(f"\nchosen: {describe_plan(chosen)}: {optimization_result.choice.reason}")
    print(f"the best of all: {describe_plan(best)}")
    screening = measured.screening_of(chosen)
    assert screening is not None
    speed = optimization_result.measured.speed_of(chosen)
    assert speed is not None
    of_best = math.exp(scores[chosen] - scores[best])
    return [
        Figure("vecmill optimize took", "s", (took_s,), LIMIT_S),
        at_least("chosen / best of all", "ratio", [of_best], 0.95),
        at_least("chosen: worst cosine", "", [screening.accuracy.worst_cosine], goal.min_cosine),
        Figure("chosen: throughput by the report", "texts/s", (speed.texts_per_s,)),
        Figure("chosen: throughput served", "texts/s", tuple(rates)),
        at_least("served / report", "ratio", [statistics.median(rates) / speed.texts_per_s], 0.85),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, serve=SERVE_WITH_ENGINES)
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    with start(parser, arguments) as run:
        directory, cache = run.folder / "optimised", run.folder / "cache"
        limit_s = run.options.limit_s
        asked = OptimizeOptions(None, directory, Goal(), time_limit_s=limit_s, cache_dir=cache)
        began = time.perf_counter()
        result = optimize_model(asked, lambda step: print(f"  {step}", flush=True))
        took_s = time.perf_counter() - began
        rates = served_rates(directory, [str(run.options.serve)], run.folder)
        scratch = run.folder / "scratch"
        scratch.mkdir()
        measured, finals, count = search_all(asked, scratch, result.choice.plan)
        print(f"{count} plans were accurate enough")
        figures = figures_of(result, took_s, measured, finals, rates)
    return run.finish("optimize", "vecmill optimize on the embedded model", figures)


if __name__ == "__main__":
    sys.exit(main())
