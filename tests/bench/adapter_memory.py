"""Memory of a server with a base and LoRA adapters of it against that of the base alone.

    make bench-adapter-memory                      (ARGS="--engine openvino")

The base has the shape of multilingual-e5-small: BERT with 12 layers of 384 and a vocabulary of 250,037
pieces. It has 448 MiB of random weights, of which the table of the vocabulary is 366 MiB. There are two kinds
of adapters of rank 8: of queries and values alone, as is the default of the package peft, and of all linear
layers. Memory is the proportional set size (PSS) of the server, after loading and after each model has
computed the same mixed texts. The first start of each server, which prepares the models, is not measured. The
ratios are promised for the onnx engine. The measurement needs 6 GB of memory and of disk.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy

from bench.process_memory import REQUEST_S, START_S, run_apart, save_vocabulary
from bench.process_use import memory_mib
from bench.processes import contestant
from bench.program import SERVE, make_parser, start
from bench.report import Figure
from bench.size_models import SHAPES, Shape, save_model
from support.lora_adapters import Lora, write_config
from support.plain_http import post
from support.texts import mixed_texts

SEED = 20_261_124
PIECES = 250_037
RANK, STRENGTH = 8, 0.02
MAX_RATIO = 1.5
SHAPE = Shape(
    "BertConfig", "BertModel", {**SHAPES["bge-small"].config, "vocab_size": PIECES}, "mean", max_tokens=512
)
KINDS = {"queries and values": ("query", "value"), "all linear layers": ("query", "key", "value", "dense")}


def write_base(folder: Path) -> None:
    """Write the directory of the base."""
    save_model(SHAPE, folder)
    save_vocabulary(folder / "tokenizer.json", PIECES)


def write_adapter(folder: Path, base: Path, targets: Sequence[str], seed: int) -> Path:
    """Write an adapter of random matrices, as peft saves it."""
    chance = np.random.default_rng(seed)
    tensors = {}
    with safetensors.safe_open(base / "model.safetensors", framework="np") as weights:
        for name in weights.keys():  # noqa: SIM118  # no mapping
            module, _, part = name.rpartition(".")
            if part != "weight" or module.rpartition(".")[2] not in targets or "pooler" in name:
                continue
            rows, columns = weights.get_slice(name).get_shape()
            for letter, shape in (("A", (RANK, columns)), ("B", (rows, RANK))):
                values = (STRENGTH * chance.standard_normal(shape)).astype(np.float32)
                tensors[f"base_model.model.{module}.lora_{letter}.weight"] = values
    folder.mkdir(parents=True)
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    config = write_config(Lora(tuple(targets), rank=RANK), str(base))
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def measure(serve: Path, models: Sequence[Path], options: Sequence[str], folder: Path) -> tuple[float, float]:
    """Start a server of `models`; return its memory after loading, and after each has computed texts."""
    given = (*map(str, models), *options)
    with contestant(serve, 1, given, folder, start_s=START_S) as server:
        loaded = memory_mib(server.root_pid)[1]
        for model in models:
            for text in mixed_texts(SEED, 20):
                body = {"input": text, "model": model.name}
                post(f"{server.url}/v1/embeddings", body, timeout_s=REQUEST_S)
        return loaded, memory_mib(server.root_pid)[1]


def count_disk_mib(cache: Path) -> float:
    """Return the space that the prepared files take; files of several names count once."""
    found = [path.stat() for path in cache.rglob("model*") if path.is_file()]
    return sum({state.st_ino: state.st_size for state in found}.values()) / 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, serve=SERVE)
    parser.add_argument("--engine", default="onnx", help="The engine of all models.")
    parser.add_argument("--adapters", type=int, default=2, help="The adapters of each kind.")
    with start(parser, arguments, seed=SEED) as run:
        options, folder = run.options, run.folder
        base = folder / "base"
        run_apart(write_base, base)
        groups: dict[str, list[Path]] = {"base alone": [base]}
        for kind, targets in KINDS.items():
            adapters = [
                write_adapter(folder / f"{kind[:3]}-{number}", base, targets, number)
                for number in range(options.adapters)
            ]
            groups[f"base and {options.adapters} adapters of {kind}"] = [base, *adapters]
        figures, alone = [], (0.0, 0.0)
        bound = MAX_RATIO if options.engine == "onnx" else None
        for number, (name, models) in enumerate(groups.items()):
            given = ("--engine", options.engine, "--cache-dir", str(folder / f"cache-{number}"))
            measure(options.serve, models, given, folder / f"first-{number}")
            sizes = measure(options.serve, models, given, folder / f"second-{number}")
            alone = alone if number else sizes
            figures.append(Figure(f"{name}, on disk", "MiB", (count_disk_mib(folder / f"cache-{number}"),)))
            for moment, size, one in zip(("after loading", "after the texts"), sizes, alone, strict=True):
                figures.append(Figure(f"{name}, {moment}", "MiB", (size,)))
                if number:
                    figures.append(Figure(f"that / base alone, {moment}", "ratio", (size / one,), bound))
    return run.finish("adapter_memory", "memory of adapters over one base", figures)


if __name__ == "__main__":
    sys.exit(main())
