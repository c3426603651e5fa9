"""Every engine and precision that can run here, over the same texts: speed, accuracy, memory, starts.

make bench-engines

Each is a process of its own. First each starts twice by itself, with an empty cache and with a filled one,
and answers all texts. Then all are loaded and take turns for some rounds, in an order that turns: while one
is measured the others sleep. What is promised are medians of each round's ratios, since the machine drifts
between rounds and ratios do not.

    make bench-engines ARGS="--engine torch --before ../other-checkout"

measures the engines of another checkout too, and how they differ. Name the engines that differ: each pair
wants twenty rounds or more, and all others only take time from it.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.contestants import ORACLE, Entry, add_earlier, list_entries
from bench.engines_report import Record, Turn, draw_plot, figures_of, write_table
from bench.program import make_parser, start
from bench.report import finish, save_page
from bench.rigs import shuffled
from support.source_tree import ROOT
from support.texts import hard_texts, mixed_texts
from vecmill.errors import SetupError
from vecmill.hardware.cores import available_cores
from vecmill.serving_plan.manifest import runtime_versions
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import DEFAULT_ENGINE
from vecmill.verification.comparison import compare_embeddings

SEED = 20_260_106
TEXTS = 600
RATED = 200  # of them: accuracy wants many texts, and speed many rounds
SHAPES = ((1, 16), (1, 128), (8, 64))


def start_alone(record: Record, cache_dir: Path, texts: Sequence[str]) -> FloatArray | None:
    """Start twice; keep in `record` what that takes. Returns the rows of `texts`, or `None` if refused."""
    rows: FloatArray | None = None
    for is_second in (False, True):
        began = time.perf_counter()
        try:
            with record.entry.start(cache_dir) as ask:
                record.starts_s.append(time.perf_counter() - began)
                if is_second:
                    rows = ask("rows", texts)
                    record.memory_mb = ask("memory_mb")
        except SetupError as refusal:
            record.refusal = refusal.message
            return None
    return rows


def start_each(entries: Sequence[Entry], cache_dir: Path, texts: Sequence[str]) -> list[Record]:
    """Starts, memory, and how far the rows are from the reference's, which is the first entry."""
    records = [Record(entry) for entry in entries]
    reference: FloatArray | None = None
    for record in records:
        rows = start_alone(record, cache_dir, texts)
        if reference is None:
            reference = rows
        if rows is not None and reference is not None:
            record.comparison = compare_embeddings(rows, reference)
        print(f"{record.entry.name}: {record.refusal or record.describe_starts()}", flush=True)
    return records


def take_turn(ask: Callable[..., Any], texts: Sequence[str], cores: int) -> Turn:
    """One contestant's figures of one round."""
    return Turn(
        narrow=ask("rate", texts, 1),
        all_cores=ask("rate", texts, cores),
        latencies_ms=tuple(ask("latency_ms", *shape) for shape in SHAPES),
    )


def measure(records: Sequence[Record], cache_dir: Path, texts: Sequence[str], rounds: int) -> None:
    """Rounds over all that were not refused, some of `texts` in a new order each time."""
    texts = texts[:: max(1, len(texts) // RATED)]
    running = [record for record in records if not record.refusal]
    cores = available_cores()
    with ExitStack() as stack:
        asks = [stack.enter_context(record.entry.start(cache_dir)) for record in running]
        contest = list(zip(running, asks, strict=True))
        for _, ask in contest:
            take_turn(ask, texts, cores)  # shapes that are new cost some engines a compilation
        for number in range(rounds):
            first = number % len(contest)
            for record, ask in contest[first:] + contest[:first]:
                record.turns.append(take_turn(ask, shuffled(texts, SEED + number), cores))
            rates = ", ".join(f"{record.entry.name} {record.turns[-1].all_cores:.0f}" for record in running)
            print(f"round {number + 1}, texts/s: {rates}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument(
        "--engine", action="append", help="Leave out the others, but for those compared with."
    )
    parser.add_argument(
        "--before", type=Path, help="Another checkout, whose engines are measured beside those of this one."
    )
    hard, cores = hard_texts(), available_cores()
    with start(parser, arguments, seed=SEED) as run:
        options = run.options
        texts = [*hard, *mixed_texts(SEED, max(0, options.texts - len(hard)))][: options.texts]
        entries = list_entries(run.folder, cores)
        if options.engine:
            others = () if options.before else (ORACLE, DEFAULT_ENGINE)
            wanted = {*others, *options.engine}
            entries = [entry for entry in entries if entry.engine in wanted]
        if options.before is not None:
            entries = add_earlier(entries, options.before)
        records = start_each(entries, run.folder / "cache", texts)
        measure(records, run.folder / "cache", texts, options.rounds)
    table = write_table(records, SHAPES, cores)
    page = save_page("engines", table)
    draw_plot(records, page.with_suffix(".png"))
    print(f"\n{table}\n\nwritten to {page.relative_to(ROOT)}, with a plot beside it")
    settings = {
        **vars(options),
        "before": options.before and str(options.before),
        "versions": runtime_versions(entry.engine for entry in entries),
        "median_texts_per_s": {
            record.entry.name: median(turn.all_cores for turn in record.turns)
            for record in records
            if record.turns
        },
    }
    return finish("engines", "engines on the embedded model, all cores", figures_of(records), settings)


if __name__ == "__main__":
    sys.exit(main())
