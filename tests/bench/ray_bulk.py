"""`vecmill ray embed` on two nodes with a network between them: rows kept through failures, and scaling.

    make bench-ray-bulk

Needs .venv/ray, and root and iproute2 for network namespaces. Each scenario is a cluster of its own. The
scaling run gives one worker all cores of the machine and two workers half of them each: the ideal is the same
speed, and the difference is what the second node costs.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.program import make_parser, start
from on_ray import namespaces
from on_ray.bulk_scenarios import INPUT, LONG_SCENARIOS, BulkInput, Run, play, table
from on_ray.two_nodes import TwoNodes
from vecmill.hardware.cores import available_cores

TEXTS, BLOCK_ROWS = 100_000, 500
LIMIT_S = 4 * 3600.0
MAX_DIFFERENCE = 1e-6
SCALING = "scaling"


def measure_rate(folder: Path, texts: BulkInput, *, cores: int, has_worker: bool) -> float:
    """The texts a second of one whole run, on one node or on two; the model is loaded before."""
    folder.mkdir()
    with TwoNodes(folder, cores=cores, has_worker=has_worker) as nodes:
        nodes.put(INPUT, texts.lines)
        run = Run(nodes, texts, folder, "scaling")
        run.wait_for_blocks(1, LIMIT_S)
        began, before = time.monotonic(), len(run.block_files())
        run.finish(LIMIT_S)
        seconds = time.monotonic() - began
        return (len(run.block_files()) - before) * texts.block_rows / seconds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--block-rows", type=int, default=BLOCK_ROWS)
    parser.add_argument("--scenario", action="append", choices=[*LONG_SCENARIOS, SCALING])
    outcomes = []
    with start(parser, arguments) as run:
        reason = namespaces.why_not()
        if reason:
            print(f"cannot measure: {reason}", file=sys.stderr)
            return 2
        options, folder = run.options, run.folder
        texts = BulkInput.make(folder, options.texts, options.block_rows, TwoNodes(folder).environment())
        chosen = options.scenario or [*LONG_SCENARIOS, SCALING]
        for scenario in chosen:
            if scenario == SCALING:
                continue
            place = folder / scenario.replace(" ", "-")
            place.mkdir()
            with TwoNodes(place) as nodes:
                outcomes.append((scenario, play(nodes, texts, place, scenario, LIMIT_S)))
            print(table(outcomes[-1:]), flush=True)
        print(table(outcomes))
        if SCALING in chosen:
            cores = max(2, available_cores() // 2 * 2)
            one = measure_rate(folder / "one", texts, cores=cores, has_worker=False)
            two = measure_rate(folder / "two", texts, cores=cores // 2, has_worker=True)
            print(f"one worker with {cores} cores: {one:.1f} texts/s (the ideal for two workers)")
            print(f"two workers with {cores // 2} each: {two:.1f} texts/s, {two / one:.0%} of the ideal")
    kept = all(
        (one.lost, one.doubled) == (0, 0) and one.max_difference < MAX_DIFFERENCE for _, one in outcomes
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
