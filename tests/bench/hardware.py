"""How much of the machine the server uses: against the in-process ceiling, and the peak of matrix products.

    make bench-hardware ARGS="--engine openvino --precision bf16"

In each round the server answers a load; then the ceiling computes the same texts in process with the same
engine, sorted, in batches of the size that is fastest for it; then the matrix peak is measured. The promises
are about the medians of each round's ratios, and about the memory of the server after all loads.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.generator import run_load, send_requests, write_bodies
from bench.matrix_peak import load_matrix_peak, operations_of
from bench.process_use import memory_mib
from bench.program import SERVE, SERVE_WITH_ENGINES, Run, make_parser, start
from bench.report import Figure
from bench.rigs import remote_process, run_in_threads, shuffled, sorted_batches
from support.texts import long_texts, medium_texts, mixed_texts, short_texts
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.hardware.cores import available_cores
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import DEFAULT_ENGINE, EnginePlan, Precision
from vecmill_server.bench.load_results import OK
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.target import MeasuredServer

SEED = 20_261_124
BATCH_TOKENS = (256, 512, 1_024)
BATCH_CHOICE_TEXTS = 300
LONG_TEXTS = 64  # in a request
LARGE_REQUEST_S = 300.0
MOST_MIB = {"onnx": 300.0, "openvino": 400.0}


@dataclass(frozen=True, slots=True)
class Load:
    """A load: texts of one kind, so many in a request. The shares are promised: of fp32, and of others.

    A load of large requests ends after so many `requests`, since few of them end in a given time.
    """

    name: str
    texts: Callable[[int, int], Sequence[str]]
    count: int
    clients: int
    in_request: int
    of_ceiling: tuple[float, float]
    of_peak: tuple[float, float] | None = None
    requests: int | None = None


LOADS = (
    *(Load(f"short, {n}", short_texts, 12_000, n, 1, (0.93, 0.90), (0.70, 0.45)) for n in (32, 128, 1_000)),
    *(Load(f"45-55 words, {n}", medium_texts, 4_000, n, 1, (0.96, 0.90)) for n in (32, 128)),
    *(Load(f"mixed, {n}", mixed_texts, 5_000, n, 1, (0.96, 0.90)) for n in (32, 128)),
    Load("256 tokens, 32", long_texts, 1_000, 32, 1, (0.96, 0.90), (0.85, 0.60)),
    Load(f"{LONG_TEXTS} texts of 256 tokens a request, 4", long_texts, 1_024, 4, LONG_TEXTS, (0.97, 0.90)),
    Load("2048 short texts a request, 4", short_texts, 16_384, 4, 2_048, (0.97, 0.90), requests=8),
)


class PlanCeiling:
    """Sorted batches on as many narrow lanes as there are cores, with the engine of a plan."""

    def __init__(self, cache_dir: Path, plan: EnginePlan) -> None:
        description = describe_model(locate_model(None))
        self._cores = available_cores()
        self._tokenizer = Tokenizer.load(description)
        self._engine = load_engine(description, plan, cores=self._cores, cache_dir=cache_dir)
        self._engine.warm_up()

    def measure(self, texts: Sequence[str]) -> tuple[float, float]:
        """The seconds for `texts`, and the operations that their products and attention need."""
        sequences = self._tokenizer.encode(texts)
        some = sequences[:BATCH_CHOICE_TEXTS]
        tokens = min(BATCH_TOKENS, key=lambda tokens: self._seconds(some, tokens))
        return self._seconds(sequences, tokens), operations_of([len(sequence) for sequence in sequences])

    def _seconds(self, sequences: Sequence[TokenSequence], batch_tokens: int) -> float:
        batches = sorted_batches(sequences, batch_tokens)
        return run_in_threads(lambda batch: self._engine.run(batch, width=1), batches, self._cores)


@dataclass(frozen=True, slots=True)
class Round:
    """Texts per second of the server and the ceiling; operations per text, and per second at the peak."""

    server: float
    ceiling: float
    operations: float
    peak: float


def measure_load(
    load: Load,
    url: str,
    ceiling: Callable[..., tuple[float, float]],
    peak: Callable[[Sequence[str]], float],
    run: Run,
) -> list[Figure]:
    texts = shuffled(load.texts(SEED, load.count), SEED)
    rounds = []
    bodies = write_bodies(run.folder / "bodies", texts, load.in_request)
    if load.requests is None:
        run_load(url, bodies, connections=load.clients, duration_s=2)
    for number in range(run.options.rounds):
        requests, rate = drive(load, url, bodies, run.options.seconds)
        count, rate = requests * load.in_request, rate * load.in_request
        done = [texts[index % len(texts)] for index in range(count)]
        seconds, operations = ceiling("measure", done)
        rounds.append(Round(rate, count / seconds, operations / count, peak([])))
        print(f"{load.name}, round {number + 1}: {rounds[-1]}", flush=True)
    return figures_of(load, rounds, is_fp32=run.options.precision is Precision.FP32)


def drive(load: Load, url: str, bodies: Path, seconds: int) -> tuple[int, float]:
    """The answered requests of a load, and requests per second."""
    if load.requests is None:
        found = run_load(url, bodies, connections=load.clients, duration_s=seconds)
        return found.requests, found.rate
    target = MeasuredServer.of(url, ServerApi.EMBEDDINGS, None)
    answers = send_requests(
        target, bodies, connections=load.clients, requests=load.requests, timeout_s=LARGE_REQUEST_S
    )
    return answers.statuses[OK], answers.requests_per_s


def figures_of(load: Load, rounds: Sequence[Round], *, is_fp32: bool) -> list[Figure]:
    """The rates and the shares of one load."""
    promised = 0 if is_fp32 else 1

    def figure(name: str, unit: str, value: Callable[[Round], float], bound: float | None = None) -> Figure:
        return Figure(f"{load.name}: {name}", unit, tuple(map(value, rounds)), bound, at_most=False)

    of_peak = None if load.of_peak is None else load.of_peak[promised]
    return [
        figure("server", "texts/s", lambda r: r.server),
        figure("ceiling", "texts/s", lambda r: r.ceiling),
        figure("server", "GFLOP/s", lambda r: r.server * r.operations / 1e9),
        figure("peak", "GFLOP/s", lambda r: r.peak / 1e9),
        figure("server / ceiling", "share", lambda r: r.server / r.ceiling, load.of_ceiling[promised]),
        figure("server / peak", "share", lambda r: r.server * r.operations / r.peak, of_peak),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=10, seconds=8)
    parser.add_argument("--engine", default=DEFAULT_ENGINE, choices=list(MOST_MIB))
    parser.add_argument("--precision", type=Precision, default=Precision.FP32)
    parser.add_argument("--serve", type=Path, help="The vecmill that serves.")
    parser.add_argument("--load", action="append", choices=[load.name for load in LOADS])
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        engine, precision = run.options.engine, run.options.precision
        serve = run.options.serve or (SERVE if engine == DEFAULT_ENGINE else SERVE_WITH_ENGINES)
        # 128 clients of one address bring more work than one client may have waiting.
        serving = ("--engine", engine, "--precision", precision, "--target-wait-s", "30")
        server = run.serve(*serving, command=[str(serve)], timeout_s=300.0)
        plan = EnginePlan(engine, precision)
        ceiling = run.stack.enter_context(remote_process(PlanCeiling, run.folder / "cache", plan))
        measure_peak = run.rig(partial(load_matrix_peak, precision=precision))
        for load in LOADS:
            if run.options.load is None or load.name in run.options.load:
                figures += measure_load(load, server.url, ceiling, measure_peak, run)
        _, pss_mib = memory_mib(server.process.pid)
        figures.append(
            Figure("server: proportional memory after all loads", "MiB", (pss_mib,), MOST_MIB[engine])
        )
    return run.finish(f"hardware-{engine}-{precision}", f"{engine} {precision}, closed loop, base64", figures)


if __name__ == "__main__":
    sys.exit(main())
