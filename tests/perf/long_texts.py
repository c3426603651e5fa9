"""One text of each length: seconds, the memory beyond that of the loaded model, and a short text afterwards.

Then the longest text again, through a server that answers short texts meanwhile.

make bench-long
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perf.long_beside_short import bench_beside
from perf.report import Figure, finish, warn_if_busy
from perf.size_models import SHAPES
from perf.sizes import run_script

LENGTHS = (128, 512, 1024, 2048, 4096, 8192)
PEAK_MB = 2000.0
KEPT_MB = 100.0


def measure(
    model: Path, cache: Path, engine: str, width: int, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """What `long_text_probe` says about one engine and number of cores."""
    answer = run_script(Path(sys.executable), "long_text_probe.py", model, cache, engine, width, *lengths)
    told: list[dict[str, Any]] = json.loads(answer.splitlines()[-1])
    return told


def print_lengths(title: str, told: Sequence[Mapping[str, Any]]) -> None:
    """One line for each length."""
    print(f"\n{title}\n  tokens   seconds  processor  peak, MB  kept, MB  short before, ms  after, ms")
    for one in told:
        print(
            f"{one['length']:>8}  {one['seconds']:>8.2f}  {one['processor_s']:>9.2f}  "
            f"{one['peak_mb']:>8.0f}  {one['kept_mb']:>8.0f}  {one['short_before_ms']:>16.1f}  "
            f"{one['short_after_ms']:>9.1f}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", default="ModernBERT-base", choices=sorted(SHAPES))
    parser.add_argument("--engine", action="append", help="onnx by default")
    parser.add_argument("--width", action="append", type=int, help="The cores of a call; 1 and 2 by default.")
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--served-only", action="store_true", help="Only the part with a server.")
    options = parser.parse_args(arguments)
    warn_if_busy()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="vecmill-long-") as scratch:
        folder = Path(scratch)
        run_script(Path(sys.executable), "size_models.py", options.shape, folder)
        for engine in [] if options.served_only else options.engine or ["onnx"]:
            for width in options.width or [1, 2]:
                told = measure(folder / "model", folder / "cache", engine, width, options.lengths)
                name = f"{options.shape}, {engine}, {width} cores"
                print_lengths(name, told)
                for one in told:
                    label = f"{name}, {one['length']} tokens"
                    figures += [
                        Figure(label, "s", (one["seconds"],)),
                        Figure(f"{label}: memory beyond the model", "MB", (one["peak_mb"],), PEAK_MB),
                        Figure(f"{label}: memory kept", "MB", (one["kept_mb"],), KEPT_MB),
                    ]
        figures += bench_beside(folder / "model", max(options.lengths))
    return finish("long_texts", f"long texts, {options.shape}", figures, {"lengths": list(options.lengths)})


if __name__ == "__main__":
    sys.exit(main())
