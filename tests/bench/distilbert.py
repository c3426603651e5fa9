"""DistilBERT for one client, text by text: the server over HTTP against transformers' pipeline in process.

make bench-distilbert

Hugging Face measured this in January 2022 ("Case Study: Millisecond Latency using Hugging Face Infinity and
modern CPUs", figure 3): a DistilBERT that classifies, batches of one, two cores. `PUBLISHED` is how much
faster than the pipeline their server was.

The pipeline and one server for each engine and precision are processes of their own. They take turns: while
one is measured the others sleep, and the report says whether they did. wrk is the client, on one connection.
"""

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

from bench.distilbert_inputs import Answer, Inputs, PipelineCalls, make_inputs, make_texts, save_classifier
from bench.generator import run_load
from bench.process_use import processor_s
from bench.program import SERVE_WITH_ENGINES, make_parser, start
from bench.published.articles import HUGGING_FACE_INFINITY, HUGGING_FACE_TRANSFORMERS
from bench.report import Figure, ratios_of
from bench.rigs import rig_process
from support.plain_http import post
from support.server import LiveServer, NotStarted, live_server
from vecmill.engines import ENGINES, find_engine
from vecmill.values.engine_plan import EnginePlan, Precision

SEED = 20_260_105
PUBLISHED = {
    length: rate / HUGGING_FACE_TRANSFORMERS[length] for length, rate in HUGGING_FACE_INFINITY.items()
}
TEXTS = 16
TOLERANCE = 1e-4
START_TIMEOUT_S = 900.0  # int8 weights are made at the first start
EXACT = EnginePlan("onnx", Precision.FP32)
REDUCED = (
    EnginePlan("onnx", Precision.INT8),
    EnginePlan("onnx", Precision.INT8_FAST),
    EnginePlan("openvino", Precision.BF16),
    EnginePlan("openvino", Precision.INT8),
)
PIPELINE = "pipeline"

Rates = dict[int, dict[str, list[float]]]
"""Texts per second: by length, by contestant, for each round."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """Whoever is measured: `measure` gives texts per second for texts of a length."""

    name: str
    pid: int
    measure: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Findings:
    """`rates`, and the largest share of a core that the contestants who had to sleep used together."""

    rates: Rates
    idle_share: float


def best_answer(answer: Sequence[Mapping[str, object]]) -> Answer:
    """The first label of what `/predict` gave."""
    return Answer(str(answer[0]["label"]), float(str(answer[0]["score"])))


def check_answers(found: Mapping[str, Answer], expected: Mapping[str, Answer]) -> float:
    """The largest difference of a score. Raises `AssertionError` for another label, or above `TOLERANCE`."""
    largest = 0.0
    for text, wanted in expected.items():
        got = found[text]
        difference = abs(got.score - wanted.score)
        assert got.label == wanted.label, f"{got} where the pipeline says {wanted}: {text[:60]}"
        assert difference <= TOLERANCE, f"{got} where the pipeline says {wanted}: {text[:60]}"
        largest = max(largest, difference)
    return largest


def measure_in_turn(contestants: Sequence[Contestant], lengths: Sequence[int], rounds: int) -> Findings:
    """Each contestant after the other, `rounds` times for each length."""
    rates: Rates = {length: {one.name: [] for one in contestants} for length in lengths}
    idle_share = 0.0
    for length in lengths:
        for _ in range(rounds):
            for one in contestants:
                idle = [other.pid for other in contestants if other is not one]
                before, began = sum(map(processor_s, idle)), time.perf_counter()
                rates[length][one.name].append(one.measure(length))
                used_s = sum(map(processor_s, idle)) - before
                idle_share = max(idle_share, used_s / (time.perf_counter() - began))
        print(
            f"{length} tokens: " + ", ".join(f"{name} {median(v):.1f}" for name, v in rates[length].items())
        )
    return Findings(rates, idle_share)


def served(server: LiveServer, name: str, bodies: Mapping[int, Path], seconds: int) -> Contestant:
    """A server that answers `/predict`, asked by one client."""

    def measure(length: int) -> float:
        found = run_load(server.url, bodies[length], connections=1, duration_s=seconds, route="/predict")
        wait_for_left_requests(server.url, bodies[length])
        return found.rate

    return Contestant(name, server.process.pid, measure)


def wait_for_left_requests(url: str, bodies: Path) -> None:
    """Send the first request twice, and wait for both answers.

    Then the server has computed the requests that wrk left open, and does not slow down the next contestant.
    """
    with bodies.open("rb") as file:
        body = json.loads(file.readline())
    for _ in range(2):
        post(f"{url}/predict", body)


def name_plan(plan: EnginePlan) -> str:
    """What a column is called."""
    return f"{plan.engine} {plan.precision}"


def plans_here() -> list[EnginePlan]:
    """fp32, and what else the engines that are installed offer on this processor."""
    offered = {
        name: find_engine(name).find_capabilities().devices.get("cpu", ())
        for name in {plan.engine for plan in REDUCED}
        if ENGINES[name].is_installed
    }
    return [EXACT, *(plan for plan in REDUCED if plan.precision in offered.get(plan.engine, ()))]


def start_server(
    stack: ExitStack,
    folder: Path,
    inputs: Inputs,
    plan: EnginePlan,
    command: Sequence[str],
    *,
    arguments: Sequence[str] = (),
) -> LiveServer:
    """A server that has answered each of the texts once. At fp32 it agrees with the pipeline."""
    place = folder / name_plan(plan).replace(" ", "-")
    place.mkdir(exist_ok=True)  # of a former server, with the prepared weights
    print(f"starting {name_plan(plan)} ...")
    plan_arguments = ["--engine", plan.engine, "--precision", str(plan.precision)]
    server = stack.enter_context(
        live_server(
            place,
            arguments=[str(inputs.model), *plan_arguments, *arguments],
            command=command,
            timeout_s=START_TIMEOUT_S,
        )
    )
    print(f"{name_plan(plan)} is ready after {server.ready_after_s:.1f} s")
    found = {text: best_answer(post(f"{server.url}/predict", {"inputs": text})) for text in inputs.answers}
    if plan == EXACT:
        print(f"scores differ from the pipeline's by at most {check_answers(found, inputs.answers):.1e}")
    return server


def compare(
    folder: Path,
    inputs: Inputs,
    *,
    plans: Sequence[EnginePlan],
    command: Sequence[str],
    rounds: int,
    seconds: int,
) -> Findings:
    """Measure the server with each of `plans`, and the pipeline. `folder` takes caches and bodies."""
    bodies = {length: folder / f"bodies-{length}" for length in inputs.texts}
    for length, path in bodies.items():
        lines = [json.dumps({"inputs": text}) + "\n" for text in inputs.texts[length]]
        path.write_text("".join(lines), encoding="utf-8")
    with ExitStack() as stack:
        contestants = []
        for plan in plans:
            try:
                server = start_server(stack, folder, inputs, plan, command)
            except NotStarted as refusal:  # random weights may lose more than real ones
                print(f"{name_plan(plan)} is left out: {str(refusal).strip().splitlines()[-1]}", flush=True)
                continue
            contestants.append(served(server, name_plan(plan), bodies, seconds))
        others = set(multiprocessing.active_children())
        calls = stack.enter_context(rig_process(partial(PipelineCalls, seconds=seconds), inputs.model))
        [child] = set(multiprocessing.active_children()) - others
        assert child.pid is not None
        pipeline = Contestant(PIPELINE, child.pid, lambda length: calls(inputs.texts[length]))
        return measure_in_turn([*contestants, pipeline], list(inputs.texts), rounds)


def ratios(rates: Mapping[str, Sequence[float]], name: str) -> tuple[float, ...]:
    """How much faster than the pipeline `name` was, round by round."""
    return ratios_of(rates[name], rates[PIPELINE])


def write_table(rates: Rates, chosen: str) -> str:
    """Texts per second in Markdown, the ratio of `chosen` beside the published one. Medians, with spreads."""
    names = [name for name in next(iter(rates.values())) if name != PIPELINE]
    heads = ["tokens", "pipeline, texts/s", *(f"{name}, texts/s" for name in names)]
    heads += [f"{chosen} / pipeline", "published", "beaten"]
    lines = [heads, ["---:"] * len(heads)]
    for length, found in rates.items():
        ratio, aim = ratios(found, chosen), PUBLISHED.get(length)
        ours = [f"{_spread(found[name])}, {median(ratios(found, name)):.2f}x" for name in names]
        verdict = ["-", "-"] if aim is None else [f"{aim:.2f}", "yes" if median(ratio) > aim else "no"]
        spread = f"{median(ratio):.2f} ({min(ratio):.2f}-{max(ratio):.2f})"
        lines.append([str(length), _spread(found[PIPELINE]), *ours, spread, *verdict])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def rate_figures(rates: Rates) -> list[Figure]:
    """`rates` for the report in JSON."""
    return [
        Figure(f"{name}, {length} tokens", "texts/s", tuple(values))
        for length, found in rates.items()
        for name, values in found.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5, seconds=3, serve=SERVE_WITH_ENGINES)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(PUBLISHED), help="Tokens of a text.")
    parser.add_argument("--chosen", default=name_plan(REDUCED[-1]), help="Whose ratio is compared.")
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        options = run.options
        model = save_classifier(run.folder / "model", seed=SEED)
        inputs = make_inputs(model, {length: make_texts(SEED, length, TEXTS) for length in options.lengths})
        findings = compare(
            run.folder,
            inputs,
            plans=plans_here(),
            command=[str(options.serve)],
            rounds=options.rounds,
            seconds=options.seconds,
        )
    print(f"\nmedians of {options.rounds} rounds of {options.seconds} s; those who waited used at most")
    print(f"{findings.idle_share:.1%} of a core; what int8 loses: docs/decisions/0009-int8.md\n")
    ran = list(next(iter(findings.rates.values())))
    print(write_table(findings.rates, options.chosen if options.chosen in ran else ran[-2]))
    for package in ("torch", "transformers"):
        setattr(options, package, version(package))
    return run.finish("distilbert", "texts per second of one client", rate_figures(findings.rates))


if __name__ == "__main__":
    sys.exit(main())
