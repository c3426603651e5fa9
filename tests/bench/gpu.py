"""Texts per second on a GPU beside sentence-transformers in its best batch size, and the time of one text.

In turn, in one process: two processes would share the GPU. Needs a GPU that torch finds.

make bench-gpu
"""

import argparse
import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from bench.long_texts import draw_texts
from bench.program import make_parser, start
from bench.report import Figure, at_least, print_table, ratios_of
from bench.size_models import SHAPES
from bench.sizes import run_script
from vecmill import MillConfig, SyncMill
from vecmill.config import BatchConfig
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import Precision

LENGTHS = (16, 128, 500)
TOKENS_AT_ONCE, TEXTS_AT_ONCE = 262_144, 2_048
BATCH_SIZES = (32, 128, 512)
ONE_TEXT_ROUNDS = 30
THEIRS = "sentence-transformers"
SEED = 20_260_731
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# The cosine of the worst text.
WORST_COSINE = {"fp32": 0.99999, "fp16": 0.999, "bf16": 0.99}

Embed = Callable[[Sequence[str]], FloatArray]


def time_call(embed: Embed, texts: Sequence[str]) -> tuple[float, FloatArray]:
    """Return the seconds, and the embeddings."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    found = embed(texts)
    return time.perf_counter() - began, found


def best_batch_size(embed_in: Callable[[int], Embed], texts: Sequence[str]) -> int:
    """Return the fastest batch size of sentence-transformers."""
    return min(BATCH_SIZES, key=lambda size: min(time_call(embed_in(size), texts)[0] for _ in range(2)))


def compare(
    label: str, ours: Mapping[str, Embed], reference: object, length: int, rounds: int, least: float
) -> list[Figure]:
    """Many texts at once, and one text at a time, in turn. `ours` are mills by the name of their settings."""

    def with_batch(size: int) -> Embed:
        return lambda texts: np.asarray(
            reference.encode(list(texts), batch_size=size),  # type: ignore[attr-defined]
            np.float32,
        )

    texts = draw_texts(length, min(TEXTS_AT_ONCE, TOKENS_AT_ONCE // length), SEED + length)
    one = texts[:1]
    best = best_batch_size(with_batch, texts)
    rivals = {**ours, THEIRS: with_batch(best)}
    for embed in ours.values():
        time_call(embed, texts)
    speeds: dict[str, list[float]] = {name: [] for name in rivals}
    times: dict[str, list[float]] = {name: [] for name in rivals}
    found: dict[str, FloatArray] = {}
    for _ in range(rounds):
        for name, embed in rivals.items():
            took_s, rows = time_call(embed, texts)
            found[name] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
            speeds[name].append(len(texts) / took_s)
            alone = [time_call(embed, one)[0] for _ in range(ONE_TEXT_ROUNDS)]
            times[name].append(1000 * statistics.median(alone))
    figures = [
        Figure(f"{label}, {len(texts)} texts: {name}", "texts/s", tuple(values))
        for name, values in speeds.items()
    ]
    figures += [Figure(f"{label}, one text: {name}", "ms", tuple(values)) for name, values in times.items()]
    for name in ours:
        title = f"{label}: {name} / {THEIRS} in batches of {best}"
        figures.append(at_least(title, "texts/s", ratios_of(speeds[name], speeds[THEIRS]), 1.0))
        worst = float((found[name] * found[THEIRS]).sum(axis=1).min())
        figures.append(at_least(f"{label}: {name}, worst cosine", "", [worst], least))
    return figures


def measure(
    name: str, model: Path, cache: Path, plan: tuple[str, str], options: argparse.Namespace
) -> list[Figure]:
    """One model in one precision, with each limit of tokens in a call."""
    from sentence_transformers import SentenceTransformer

    engine, precision = plan
    reference = SentenceTransformer(
        str(model), device="cuda", model_kwargs={"attn_implementation": "sdpa", "dtype": DTYPES[precision]}
    )
    figures: list[Figure] = []
    with ExitStack() as stack:
        ours: dict[str, Embed] = {}
        for tokens in options.batch_tokens or [None]:
            config = MillConfig(
                engine=engine,
                device="cuda",
                precision=Precision(precision),
                cache_dir=cache,
                batch=BatchConfig(max_batch_tokens=tokens),
            )
            ours["vecmill" if tokens is None else f"vecmill, {tokens}"] = stack.enter_context(
                SyncMill(model, config)
            ).embed
        for length in options.lengths:
            label = f"{name}, {engine}, {precision}, {length} tokens"
            found = compare(label, ours, reference, length, options.rounds, WORST_COSINE[precision])
            print_table(label, found)
            figures += found
    gc.collect()
    torch.cuda.empty_cache()
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--shape", nargs="+", choices=sorted(SHAPES), default=["bge-base"])
    parser.add_argument("--engine", nargs="+", default=["torch"])
    parser.add_argument("--precision", nargs="+", choices=sorted(DTYPES), default=list(DTYPES))
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument(
        "--batch-tokens", nargs="+", type=int, help="Tokens in a call. Default: the engine's own."
    )
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED) as run:
        if not torch.cuda.is_available():
            sys.exit("torch finds no GPU here.")
        options = run.options
        options.device = torch.cuda.get_device_name(0)
        print(f"{options.device}, torch {torch.__version__}")
        for shape in options.shape:
            place = run.folder / shape
            run_script(Path(sys.executable), "size_models.py", shape, place)
            for plan in itertools.product(options.engine, options.precision):
                figures += measure(shape, place / "model", place / "cache", plan, options)
    return run.finish("gpu", "On a GPU", figures)


if __name__ == "__main__":
    sys.exit(main())
