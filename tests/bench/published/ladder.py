"""One text of 45 to 55 words a request: the steps from BERT behind FastAPI to small, quantised models.

    make bench-ladder

Comet's article ("How to 10x Throughput When Serving Hugging Face Models Without a GPU") starts with BERT of
transformers behind FastAPI with default settings, and makes it faster step by step. Each step is measured
with two clients, and vecmill with the same model beside it. The last step of the article is a faster machine.
Here it has as many clients as the machine has cores, and vecmill computes in bf16 if the processor offers it,
else in int8.

transformers and vecmill take turns. While one is measured, the other sleeps.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.classifier_inputs import Inputs, answer_texts, save_classifier
from bench.generator import run_closed_loop
from bench.processors import list_processors
from bench.program import make_parser, start
from bench.published.articles import COMET
from bench.published.report import Report, ahead, count_cores, latency_figures, spread, times_ms
from bench.published.servers import (
    EXACT,
    FASTAPI,
    GUNICORN,
    NOT_INSTALLED,
    SEED,
    FastApiOptions,
    exact_and_tuned,
    fastapi_server,
    name_plan,
    plans_here,
    start_vecmill,
    wait_for_left_requests,
    write_requests,
)
from bench.report import Figure, markdown_table, ratios_of
from support.server import NotStarted
from support.texts import medium_texts
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill_server.bench.load_results import LoadResult

CLIENTS = 2
TEXTS = 400
CHECKED = 8
# A slower server is measured for longer.
LEAST_REQUESTS = 20
# torch's quantisation does not check the accuracy. Of vecmill's, int8-fast has the looser check.
QUANTIZED = (EnginePlan("onnx", Precision.INT8_FAST), EnginePlan("onnx", Precision.INT8), EXACT)
TITLE = "One text of 45 to 55 words a request, step by step"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the article: the model, the server of transformers, and vecmill's plans.

    vecmill runs with the first of `plans` that starts: random weights may lose more accuracy in int8 than a
    quantised model may. `published` is the article's own figure.
    """

    name: str
    architecture: str
    options: FastApiOptions
    plans: Sequence[EnginePlan]
    clients: int
    published: str


@dataclass(slots=True)
class Found:
    """The results of a step, for each round. `plan` is what vecmill ran with."""

    step: Step
    theirs: list[LoadResult] = field(default_factory=list)
    ours: list[LoadResult] = field(default_factory=list)
    plan: EnginePlan | None = None


def list_steps(cores: int) -> list[Step]:
    """Return the steps of the article for a machine with this number of cores."""
    tuned = FastApiOptions(workers=cores, is_tuned=True)
    quantized = FastApiOptions(workers=cores, is_tuned=True, is_quantized=True)
    offered = plans_here()
    int8 = [plan for plan in QUANTIZED if plan in offered]
    return [
        Step("BERT, default settings", "Bert", FastApiOptions(), [EXACT], CLIENTS, "6 requests/s, 320 ms"),
        Step("BERT, a worker for each core", "Bert", tuned, [EXACT], CLIENTS, "+25% requests/s"),
        Step("DistilBERT", "DistilBert", tuned, [EXACT], CLIENTS, "-"),
        Step("DistilBERT, int8", "DistilBert", quantized, int8, CLIENTS, "+300% requests/s"),
        Step(
            "DistilBERT, int8, a client for each core",
            "DistilBert",
            quantized,
            [*reversed(exact_and_tuned())],
            cores,
            "68 requests/s, 60 ms",
        ),
    ]


def start_first(
    stack: ExitStack, folder: Path, inputs: Inputs, step: Step, processors: Sequence[int]
) -> tuple[EnginePlan, str]:
    """Start vecmill with the first plan that it accepts; return the plan and the URL. Raises `NotStarted`."""
    for plan in step.plans[:-1]:
        try:
            return plan, start_vecmill(stack, folder, inputs, plan, processors).url
        except NotStarted as refusal:
            print(f"{name_plan(plan)} is left out: {str(refusal).strip().splitlines()[-1]}", flush=True)
    last = step.plans[-1]
    return last, start_vecmill(stack, folder, inputs, last, processors).url


def measure_step(step: Step, inputs: Inputs, folder: Path, rounds: int, seconds: int) -> Found:
    """Measure both servers in turn."""
    texts = medium_texts(SEED, TEXTS)
    bodies = write_requests(folder / "bodies", [[text] for text in texts])
    found, processors = Found(step), list_processors()
    with ExitStack() as stack:
        found.plan, url = start_first(
            stack, folder.parent / f"served-{step.architecture}", inputs, step, processors
        )
        turns = [(found.ours, url)]
        if GUNICORN.exists():
            place = folder / "fastapi"
            url = stack.enter_context(fastapi_server(place, inputs, step.options, processors))
            turns.append((found.theirs, url))
        for _ in range(rounds):
            for results, each in turns:
                results.append(_measure(each, bodies, step.clients, seconds))
    told = f"{spread(rates(found.theirs))} by {FASTAPI}, {spread(rates(found.ours))} by vecmill"
    print(f"{step.name}, requests/s: {told}", flush=True)
    return found


def _measure(url: str, bodies: Path, clients: int, seconds: int) -> LoadResult:
    run_closed_loop(url, bodies, connections=clients, duration_s=1, route="/predict")
    while True:
        found = run_closed_loop(url, bodies, connections=clients, duration_s=seconds, route="/predict")
        wait_for_left_requests(url, bodies)
        if sum(found.statuses.values()) >= LEAST_REQUESTS:
            return found
        seconds *= 2


def rates(results: Sequence[LoadResult]) -> list[float]:
    """Return the requests per second of each round."""
    return [result.requests_per_s for result in results]


def write_steps(found: Sequence[Found]) -> str:
    """Return a table with a line for each step."""
    headings = [
        "step",
        "clients",
        "published",
        f"{FASTAPI}, requests/s",
        "p50, ms",
        "p95, ms",
        "vecmill with",
        "vecmill, requests/s",
        "p50, ms",
        "p95, ms",
        "vecmill / transformers",
    ]
    return markdown_table(headings, [_cells(each) for each in found])


def _cells(found: Found) -> list[str]:
    step, plan = found.step, found.plan
    cells = [step.name, str(step.clients), step.published]
    for results in (found.theirs, found.ours):
        if results is found.ours:
            cells.append("-" if plan is None else name_plan(plan))
        cells += [spread(rates(results)), *(spread(times_ms(results, name)) for name in ("p50", "p95"))]
    ratio = spread(ratios_of(rates(found.ours), rates(found.theirs)), 2) if found.theirs else "-"
    return [*cells, ratio]


def figures_of(found: Sequence[Found]) -> list[Figure]:
    """Return the rates and latencies of each step, and the promise that vecmill is ahead."""
    figures: list[Figure] = []
    for each in found:
        for name, results in ((FASTAPI, each.theirs), ("vecmill", each.ours)):
            if results:
                label = f"{each.step.name}: {name}"
                figures.append(Figure(label, "requests/s", tuple(rates(results))))
                figures += latency_figures(label, results, ("mean", "p50", "p95", "p99"))
        if each.theirs:
            ratio = ratios_of(rates(each.ours), rates(each.theirs))
            figures.append(ahead(f"{each.step.name}: vecmill / transformers", ratio))
    return figures


def draw(found: Sequence[Found], axes: Any) -> None:
    """Draw the requests per second of each step as two bars."""
    height = 0.4
    for number, (name, column) in enumerate(
        ((FASTAPI, [each.theirs for each in found]), ("vecmill", [each.ours for each in found]))
    ):
        places = [index + height * (number - 0.5) for index in range(len(found))]
        widths = [median(rates(results)) if results else 0.0 for results in column]
        bars = axes.barh(places, widths, height, label=name)
        axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=8)
    axes.set_yticks(range(len(found)), labels=[each.step.name for each in found], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("requests per second")
    axes.legend()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5, seconds=10)
    parser.add_argument("--steps", type=int, help="The first so many steps.")
    cores = len(list_processors())
    found: list[Found] = []
    inputs: dict[str, Inputs] = {}
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        options = run.options
        for number, step in enumerate(list_steps(cores)[: options.steps]):
            place, shape = run.folder / str(number), step.architecture
            place.mkdir()
            if shape not in inputs:
                model = save_classifier(run.folder / shape, seed=SEED, architecture=shape)
                inputs[shape] = Inputs(model, {}, answer_texts(model, medium_texts(SEED, CHECKED)))
            found.append(measure_step(step, inputs[shape], place, options.rounds, options.seconds))
    missing = "" if GUNICORN.exists() else f"\n\n{FASTAPI}: {NOT_INSTALLED}"
    page = (
        f"{options.rounds} rounds of {options.seconds} s, {count_cores(cores)}. Published: {COMET}; the last "
        f"step on a compute-optimised machine.{missing}\n\n{write_steps(found)}"
    )
    settings = run.settings | {"cores": cores}
    report = Report("ladder", TITLE, page, figures_of(found), settings, lambda axes: draw(found, axes))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
