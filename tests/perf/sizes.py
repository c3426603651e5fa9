"""Published shapes with random weights: load, agree with transformers, and stay within memory.

make bench-sizes
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perf.report import Figure, finish, warn_if_busy
from perf.size_models import SHAPES

TESTS = Path(__file__).parent.parent
SERVE_PYTHON = Path(".venv/serve/bin/python")


def run_script(python: Path, script: str, *arguments: object) -> str:
    """Run a script of this folder in a process of its own; return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    command = [str(python), str(TESTS / "perf" / script), *map(str, arguments)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout


def measure_shape(name: str, texts: int, python: Path) -> list[Figure]:
    """The figures of one shape. The model's files are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="vecmill-size-") as scratch:
        folder = Path(scratch)
        run_script(Path(sys.executable), "size_models.py", name, folder)
        weights_mb = sum(path.stat().st_size for path in folder.glob("model/*.safetensors")) / 1e6
        served_mb = weights_mb * (2 if SHAPES[name].dtype == "bfloat16" else 1)  # served in fp32
        first, second = (
            json.loads(run_script(python, "size_probe.py", folder, folder / "cache", count))
            for count in (0, texts)
        )
    return [
        Figure(f"{name}: weights served", "MB", (served_mb,)),
        Figure(f"{name}: largest difference", "", (second["largest_difference"],), 1e-4),
        Figure(f"{name}: first start", "s", (first["start_s"],), 2 + served_mb / 100),
        Figure(f"{name}: second start", "s", (second["start_s"],)),
        Figure(f"{name}: first start, peak memory", "MB", (first["peak_mb"],), 2.5 * served_mb),
        Figure(f"{name}: proportional memory", "MB", (second["pss_mb"],), 200 + 1.3 * served_mb),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES))
    parser.add_argument("--texts", type=int, default=1_000)
    parser.add_argument("--python", type=Path, default=SERVE_PYTHON, help="The Python that serves.")
    options = parser.parse_args(arguments)
    warn_if_busy()
    figures: list[Figure] = []
    for name in options.shape or SHAPES:
        found = measure_shape(name, options.texts, options.python)
        figures += found
        print(
            ", ".join(f"{figure.name} {figure.values[0]:.4g} {figure.unit}" for figure in found), flush=True
        )
    return finish("sizes", f"after {options.texts} mixed texts", figures, {"texts": options.texts})


if __name__ == "__main__":
    sys.exit(main())
