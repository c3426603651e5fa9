"""Published shapes with random weights: load, agree with transformers, and stay within memory.

make bench-sizes
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.program import make_parser, start
from bench.report import Figure, at_least
from bench.size_models import SHAPES
from vecmill.values.engine_plan import Precision

TESTS = Path(__file__).parent.parent
SERVE_PYTHON = Path(".venv/serve/bin/python")


def run_script(python: Path, script: str, *arguments: object) -> str:
    """Run a script of this folder in a process of its own; return what it prints."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [str(python), str(TESTS / "bench" / script), *map(str, arguments)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout


# Megabytes of fp32 weights that a first start prepares in a second, and a later start opens.
FIRST_MB_PER_S, LATER_MB_PER_S = 150, 1_000
# The memory of a precision for each byte that the weights have in fp32.
MEMORY = {Precision.FP32: 1.3, Precision.INT8_BLOCKS: 0.5}


def measure_shape(name: str, texts: int, python: Path, precisions: Sequence[Precision]) -> list[Figure]:
    """The figures of one shape. The model's files are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="vecmill-size-") as scratch:
        folder = Path(scratch)
        run_script(Path(sys.executable), "size_models.py", name, folder)
        weights_mb = sum(path.stat().st_size for path in folder.glob("model/*.safetensors")) / 1e6
        served_mb = weights_mb * (2 if SHAPES[name].dtype == "bfloat16" else 1)  # in fp32
        figures = [Figure(f"{name}: weights in fp32", "MB", (served_mb,))]
        for precision in precisions:
            figures += measure_precision(name, folder, python, texts, precision, served_mb)
    return figures


def measure_precision(
    name: str, folder: Path, python: Path, texts: int, precision: Precision, served_mb: float
) -> list[Figure]:
    """The figures of one shape in one precision. The prepared files are gone afterwards."""
    cache = folder / "cache"
    first, second = (
        json.loads(run_script(python, "size_probe.py", folder, cache, count, precision))
        for count in (0, texts)
    )
    shutil.rmtree(cache)
    title = f"{name}, {precision}"
    accuracy = (
        Figure(f"{title}: largest difference", "", (second["largest_difference"],), 1e-4)
        if precision is Precision.FP32
        else at_least(f"{title}: worst cosine", "", [second["worst_cosine"]], 0.99)
    )
    most_mb = 200 + MEMORY.get(precision, 1.3) * served_mb
    return [
        accuracy,
        Figure(f"{title}: first start", "s", (first["start_s"],), 2 + served_mb / FIRST_MB_PER_S),
        Figure(f"{title}: second start", "s", (second["start_s"],), 2 + served_mb / LATER_MB_PER_S),
        Figure(f"{title}: first start, peak memory", "MB", (first["peak_mb"],), 2.5 * served_mb),
        Figure(f"{title}: proportional memory", "MB", (second["pss_mb"],), most_mb),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES))
    parser.add_argument("--precision", action="append", type=Precision, help="Default: fp32.")
    parser.add_argument("--texts", type=int, default=1_000)
    parser.add_argument("--python", type=Path, default=SERVE_PYTHON, help="The Python that serves.")
    figures: list[Figure] = []
    with start(parser, arguments) as run:
        options = run.options
        for name in options.shape or [name for name, shape in SHAPES.items() if shape.is_compared]:
            found = measure_shape(name, options.texts, options.python, options.precision or [Precision.FP32])
            figures += found
            told = (f"{figure.name} {figure.values[0]:.4g} {figure.unit}" for figure in found)
            print(", ".join(told), flush=True)
    return run.finish("sizes", f"after {options.texts} mixed texts", figures)


if __name__ == "__main__":
    sys.exit(main())
