"""`vecmill optimize` on the embedded model, against trying everything, and then served.

make bench-optimize

First the command, as a person runs it. Then every plan that is accurate enough is measured, each several
times; the best few and the chosen one meet again in passes of their own, so that what is compared was not
picked by the same figures. Last the directory is served, by an environment without torch, and given the texts
that the report speaks of in one request: they all wait at once, as they did when they were measured.
"""

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from perf.report import Figure, finish, warn_if_busy
from support.plain_http import embed
from support.server import live_server
from vecmill.clock import monotonic
from vecmill.fidelity.sample import sample_texts
from vecmill.plan import EnginePlan
from vecmill.tuning.artefact import Findings
from vecmill.tuning.bench import WorkerBench
from vecmill.tuning.candidates import by_loading
from vecmill.tuning.choice import Demand, may_be_chosen, median_score
from vecmill.tuning.command import (
    SAMPLE_TEXTS,
    Order,
    look_around,
    optimize_model,
    write_subject,
)
from vecmill.tuning.figures import Ledger
from vecmill.tuning.search import CandidateFailed, describe_plan

SERVE = Path(sys.executable).with_name("vecmill")  # an environment with every engine
LIMIT_S = 300.0
PASSES, FINAL_PASSES, FINALISTS = 2, 7, 3
REQUESTS = 5
PATIENCE_S = 3600.0


def search_all(order: Order, scratch: Path, chosen: EnginePlan) -> tuple[Ledger, Ledger, int]:
    """Measure everything that is accurate enough, then the best few and `chosen` again.

    Returns what is known of all, of the finalists by their own passes, and how many plans there were.
    """
    found = look_around(order)
    subject = write_subject(found, order, scratch)
    with WorkerBench(subject, scratch, limit_s=PATIENCE_S, clock=monotonic) as bench:
        safe = found.space.safe_kinds[0]
        ledger = Ledger(safe, {safe: bench.admit(safe)})
        for plan in found.space.kinds:
            if plan != safe:
                _admit(bench, ledger, plan)
        kinds = [plan for plan in found.space.kinds if may_be_chosen(ledger, order.demand, plan)]
        plans = list(chain.from_iterable(found.space.variants[kind] for kind in kinds))
        _measure(bench, ledger, [plan for plan in plans if plan != safe], PASSES)
        best = sorted(plans, key=lambda plan: -median_score(ledger, order.demand, plan))[:FINALISTS]
        finals = Ledger(safe, dict(ledger.admissions))
        _measure(bench, finals, list(dict.fromkeys([chosen, *best])), FINAL_PASSES)
    return ledger, finals, len(plans)


def _admit(bench: WorkerBench, ledger: Ledger, plan: EnginePlan) -> None:
    print(f"loading and checking {describe_plan(plan)}", flush=True)
    try:
        ledger.admissions[plan] = bench.admit(plan)
    except CandidateFailed as failure:
        ledger.failures[plan] = str(failure)


def _measure(bench: WorkerBench, ledger: Ledger, plans: Sequence[EnginePlan], passes: int) -> None:
    groups = by_loading(plan for plan in plans if plan != ledger.safe)
    for start in range(0, len(groups), bench.room):
        some = list(chain.from_iterable(groups[start : start + bench.room]))
        for _ in range(passes):
            ledger.passes.append(bench.run_pass(len(ledger.passes) + 1, some))
        print(f"measured {min(start + bench.room, len(groups))} of {len(groups)} loaded engines", flush=True)


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
    findings: Findings, took_s: float, ledger: Ledger, finals: Ledger, rates: Sequence[float]
) -> list[Figure]:
    """What is promised: the time, how near the choice is to the best, and what serving reaches."""
    chosen, demand = findings.choice.plan, findings.demand
    candidates = [plan for plan in finals.plans if plan == finals.safe or finals.ratios(plan)]
    scores = {plan: median_score(finals, demand, plan) for plan in candidates}
    best = max(scores, key=scores.__getitem__)
    print(f"\nchosen: {describe_plan(chosen)}: {findings.choice.reason}")
    print(f"the best of all: {describe_plan(best)}")
    admission = ledger.admission_of(chosen)
    assert admission is not None
    speed = findings.ledger.speed_of(chosen)
    assert speed is not None
    return [
        Figure("vecmill optimize took", "s", (took_s,), LIMIT_S),
        Figure(
            "chosen / best of all", "ratio", (math.exp(scores[chosen] - scores[best]),), 0.95, at_most=False
        ),
        Figure("chosen: worst cosine", "", (admission.accuracy.worst,), demand.min_cosine, at_most=False),
        Figure("chosen: throughput by the report", "texts/s", (speed.texts_per_s,)),
        Figure("chosen: throughput served", "texts/s", tuple(rates)),
        Figure(
            "served / report", "ratio", (statistics.median(rates) / speed.texts_per_s,), 0.85, at_most=False
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--serve", type=Path, default=SERVE, help="The vecmill that serves.")
    options = parser.parse_args(arguments)
    warn_if_busy()
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as name:
        folder = Path(name)
        order = Order(
            None, folder / "optimised", Demand(), time_limit_s=options.limit_s, cache_dir=folder / "cache"
        )
        began = time.perf_counter()
        findings = optimize_model(order, lambda step: print(f"  {step}", flush=True))
        took_s = time.perf_counter() - began
        rates = served_rates(order.directory, [str(options.serve)], folder)
        scratch = folder / "scratch"
        scratch.mkdir()
        ledger, finals, count = search_all(order, scratch, findings.choice.plan)
        print(f"{count} plans were accurate enough")
        figures = figures_of(findings, took_s, ledger, finals, rates)
    return finish("optimize", "vecmill optimize on the embedded model", figures, {"limit_s": options.limit_s})


if __name__ == "__main__":
    sys.exit(main())
