"""Models that share a server: the core seconds and answers of each while all have texts that wait.

    make bench-shared-models

The models are all-MiniLM-L6-v2 and copies of it with three of its layers. For each number of clients and each
set of models a server starts with an empty cache, and all models get the same closed loop at once. In the set
"one in int8" the calibration of the int8 weights ends before the load. The ratio of the largest to the
smallest core seconds is that of `vecmill_inference_seconds` over `--seconds`.
"""

import json
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.numpy

from bench.generator import run_load
from bench.overload import read_counts
from bench.program import SERVE, START_TIMEOUT_S, Run, make_parser, start
from bench.report import Figure
from support.server import live_server
from support.texts import long_texts, medium_texts
from vecmill.models import locate_model

SEED = 20_261_128
LAYERS = 3
# The promise, by the number of clients of each model, and texts that so many clients keep waiting.
MOST_RATIO = {32: 1.2, 8: 1.3}
TEXT_SETS = {32: medium_texts, 8: long_texts}
WARM_S = 3.0
TEXTS = 4_000


@dataclass(frozen=True, slots=True)
class Served:
    """A model of a set: its name there, its directory and its precision."""

    name: str
    directory: Path
    precision: str = "fp32"


@dataclass(frozen=True, slots=True)
class Shares:
    """What each model of a set got in one round: core seconds and answers."""

    core_s: Sequence[float]
    answers: Sequence[float]

    @property
    def ratio(self) -> float:
        """The largest core seconds by the smallest."""
        return max(self.core_s) / max(min(self.core_s), 1e-9)


def cut_layers(directory: Path, target: Path) -> Path:
    """Copy the embedded model with its first `LAYERS` layers."""
    shutil.copytree(directory, target)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] = LAYERS
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = safetensors.numpy.load_file(target / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if _is_kept(name)}
    safetensors.numpy.save_file(kept, target / "model.safetensors")
    return target


def _is_kept(name: str) -> bool:
    _, found, rest = name.partition("layer.")
    return not found or int(rest.partition(".")[0]) < LAYERS


def write_config(path: Path, models: Sequence[Served]) -> Path:
    """Write the configuration file of a server of these models."""
    tables = [
        f"[[models]]\nmodel = {json.dumps(str(each.directory))}\nname = {json.dumps(each.name)}\n"
        f'precision = "{each.precision}"\n'
        for each in models
    ]
    path.write_text("\n".join(tables), encoding="utf-8")
    return path


def write_bodies(path: Path, model: str, texts: Sequence[str]) -> Path:
    """Write requests of one text each to a model, one a line."""
    lines = [json.dumps({"model": model, "input": text, "encoding_format": "base64"}) for text in texts]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def measure(run: Run, url: str, models: Sequence[Served], clients: int, seed: int) -> Shares:
    """Load all models at once, and read what each got between two moments."""
    seconds = run.options.seconds
    threads = []
    for index, model in enumerate(models):
        texts = TEXT_SETS[clients](seed + index, TEXTS)
        bodies = write_bodies(run.folder / f"bodies-{model.name}", model.name, texts)
        load = {"connections": clients, "duration_s": int(WARM_S + seconds + 2)}
        threads.append(threading.Thread(target=run_load, args=(url, bodies), kwargs=load))
    for thread in threads:
        thread.start()
    time.sleep(WARM_S)
    before = read_counts(url)
    time.sleep(seconds)
    after = read_counts(url)
    for thread in threads:
        thread.join()

    def changes(metric: str) -> list[float]:
        keys = [f'{metric}{{model="{model.name}"}}' for model in models]
        return [after[key] - before.get(key, 0.0) for key in keys]

    return Shares(changes("vecmill_inference_seconds_sum"), changes("vecmill_queue_wait_seconds_count"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=3, seconds=5, serve=SERVE)
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        whole = locate_model().directory
        small = cut_layers(whole, run.folder / "three-layers")
        two = [Served("six-layers", whole), Served("three-layers", small)]
        sets = {
            "two models in fp32": two,
            "one in int8": [two[0], Served("three-layers-int8", small, "int8")],
            "four models": [*two, Served("six-layers-again", whole), Served("three-layers-again", small)],
        }
        for title, models in sets.items():
            for clients in MOST_RATIO:
                figures += measure_set(run, title, models, clients)
    return run.finish("shared-models", "models that share a server", figures)


def measure_set(run: Run, title: str, models: Sequence[Served], clients: int) -> list[Figure]:
    """Measure one set of models with so many clients each, in a fresh server for each round."""
    found: list[Shares] = []
    for number in range(run.options.rounds):
        name = f"{title}, {clients} clients, round {number + 1}"
        config = write_config(run.folder / "server.toml", models)
        folder = run.folder / name
        folder.mkdir()
        with live_server(
            folder,
            arguments=("--no-access-log", "--config", str(config)),
            command=[str(run.options.serve)],
            timeout_s=START_TIMEOUT_S,
        ) as server:
            found.append(measure(run, server.url, models, clients, SEED + 100 * number))
        shares = ", ".join(
            f"{model.name} {core_s:.2f} core s and {answers:.0f} answers"
            for model, core_s, answers in zip(models, found[-1].core_s, found[-1].answers, strict=True)
        )
        print(f"{name}: {shares}", flush=True)
    ratios = tuple(each.ratio for each in found)
    return [Figure(f"{title}, {clients} clients each", "ratio", ratios, MOST_RATIO[clients])]


if __name__ == "__main__":
    sys.exit(main())
