"""One text over HTTP on a GPU: the median and the 99th percentile of its time, by shape and length.

    make bench-gpu-latency

Models have random weights. One client sends a text after the other. `--device cpu` tries the program where no
GPU is.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.closed_loop import LoopServer, run_closed_loop
from bench.long_texts import SPECIAL_TOKENS, WORDS
from bench.program import SERVE_WITH_ENGINES, START_TIMEOUT_S, Run, make_parser, start
from bench.report import Figure
from bench.sizes import run_script
from vecmill_server.bench.request_sets import ServerApi

SEED = 20_261_129
TEXTS = 200
# The most milliseconds of the median, by shape and tokens: what was measured by others on a T4, or less.
MOST_MS: Mapping[str, Mapping[int, float]] = {
    "MiniLM-L6": {16: 1.5, 128: 2.0},
    "bge-base": {16: 2.5, 128: 3.0},
}


def measure(run: Run, url: str, shape: str, tokens: int) -> list[Figure]:
    """Send texts of so many tokens, one after the other."""
    folder = run.folder / f"{shape}-{tokens}"
    folder.mkdir()
    file = folder / "texts.txt"
    chance = random.Random(SEED + tokens)
    texts = [" ".join(chance.choices(WORDS, k=tokens - SPECIAL_TOKENS)) for _ in range(TEXTS)]
    file.write_text("\n".join(texts), "utf-8")
    server = LoopServer(f"{url}/v1", ServerApi.EMBEDDINGS, None, folder)
    seconds = run.options.seconds
    found = run_closed_loop(server, str(file), clients=1, batch=1, seconds=seconds, seed=SEED)
    assert not found["errors"], found["statuses"]
    times_ms, name = found["latency_ms"], f"{shape}, {tokens} tokens"
    most = MOST_MS[shape][tokens] if run.options.device != "cpu" else None
    figures = [
        Figure(f"{name}, p50", "ms", (times_ms["p50"],), most),
        Figure(f"{name}, requests", "", (found["statuses"]["200"],)),
    ]
    if "p99" in times_ms:  # of 100 requests or more
        figures.append(Figure(f"{name}, p99", "ms", (times_ms["p99"],)))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, seconds=8)
    parser.add_argument("--shape", nargs="+", choices=sorted(MOST_MS), default=list(MOST_MS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="fp16")
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED) as run:
        for shape in run.options.shape:
            place = run.folder / shape
            run_script(Path(sys.executable), "size_models.py", shape, place)
            plan = ("--engine", "torch", "--device", run.options.device, "--precision", run.options.precision)
            server = run.serve(
                place / "model",
                *plan,
                name=f"server-{shape}",
                command=[str(SERVE_WITH_ENGINES)],
                timeout_s=START_TIMEOUT_S,
            )
            for tokens in MOST_MS[shape]:
                figures += measure(run, server.url, shape, tokens)
    return run.finish("gpu-latency", "One text on a GPU, over HTTP", figures)


if __name__ == "__main__":
    sys.exit(main())
