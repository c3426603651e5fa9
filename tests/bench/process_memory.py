"""Memory of two server processes on one port against that of one, for a model of bge-m3's shape.

    make bench-process-memory

The model is XLM-RoBERTa large (24 layers, 1,024 wide, 2.3 GB) with random weights and a vocabulary of 250,002
pieces. Memory is the proportional set size (PSS) of all processes of the server, the supervisor included, so
a page that several processes share counts once. It is read after the model is loaded, and again after each
process has computed mixed texts. The first start, which prepares the model and embeds the sample texts of
int8 ranges, takes minutes and is not measured. The measurement needs 12 GB of memory and 14 GB of disk.
"""

import multiprocessing
import random
import string
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tokenizers

from bench.process_use import memory_mib
from bench.processes import CONTESTANTS, Contestant, contestant
from bench.program import SERVE, make_parser, start
from bench.report import Figure, ratios_of
from bench.size_models import SHAPES, save_model
from support.http_server import wait_until
from support.plain_http import post
from support.texts import mixed_texts
from vecmill.values.sample_texts import prose_words

SEED = 20_261_124
SHAPE = "bge-m3"
CLIENTS = 4
START_S = 900.0
SAMPLES_S = 3_600.0
REQUEST_S = 600.0
MAX_RATIO = 1.3


def save_vocabulary(path: Path, size: int) -> None:
    """Write a Unigram tokenizer like XLM-RoBERTa's: words of prose, letters, random strings of letters."""
    chance = random.Random(SEED)
    special = ("<s>", "<pad>", "</s>", "<unk>")
    pieces = dict.fromkeys(["\u2581", *string.ascii_letters, *(f"\u2581{word}" for word in prose_words())])
    while len(pieces) < size - len(special):
        pieces["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9)))] = None
    kept = list(pieces)[: size - len(special)]
    scored = [(piece, -5.0 - place / size) for place, piece in enumerate(kept)]
    model = tokenizers.models.Unigram([*((token, 0.0) for token in special), *scored], unk_id=3)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(path))


def write_model(folder: Path) -> None:
    """Write the model directory."""
    shape = SHAPES[SHAPE]
    save_model(shape, folder)
    save_vocabulary(folder / "tokenizer.json", shape.config["vocab_size"])


def run_apart(write: Callable[[Path], None], folder: Path) -> None:
    """Call a function in a process of its own, which returns the memory at its end."""
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(folder,))
    writer.start()
    writer.join()


def total_mib(server: Contestant) -> float:
    """Return the proportional memory of all processes of `server`, in MiB."""
    return sum(memory_mib(pid)[1] for pid in {server.root_pid, *server.pids})


def compute_texts(server: Contestant, texts: Sequence[str]) -> None:
    """Embed each text alone, on connections of their own, which the processes accept in turns."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        url = f"{server.url}/v1/embeddings"
        list(pool.map(lambda text: post(url, {"input": text}, timeout_s=REQUEST_S), texts))


def measure(serve: Path, count: int, model: Sequence[str], folder: Path, texts: int) -> tuple[float, float]:
    """Start `count` processes; return their memory after loading, and after `texts` texts for each."""
    with contestant(serve, count, model, folder, start_s=START_S) as server:
        loaded = total_mib(server)
        compute_texts(server, mixed_texts(SEED, texts * count))
        return loaded, total_mib(server)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=1, serve=SERVE)
    parser.add_argument("--texts", type=int, default=40, help="The texts that each process computes.")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTESTANTS}
    with start(parser, arguments, seed=SEED) as run:
        options, folder = run.options, run.folder
        run_apart(write_model, folder / "model")
        weights_mib = (folder / "model/model.safetensors").stat().st_size / 2**20
        model = (str(folder / "model"), "--cache-dir", str(folder / "cache"))
        with contestant(options.serve, 1, model, folder / "first", start_s=START_S):
            wait_until(lambda: any((folder / "cache/samples").glob("[!.]*")), patience_s=SAMPLES_S)
        for number in range(options.rounds):
            for name, count in CONTESTANTS.items():
                sizes = measure(options.serve, count, model, folder / f"{name}-{number}", options.texts)
                print(f"{name}: {sizes} MiB", flush=True)
                found[name].append(sizes)
    figures = [Figure("weights", "MiB", (weights_mib,))]
    for place, moment in enumerate(("after loading", "after the texts")):
        one, two = (tuple(sizes[place] for sizes in found[name]) for name in CONTESTANTS)
        figures += [
            Figure(f"one process, {moment}", "MiB", one),
            Figure(f"two processes, {moment}", "MiB", two),
            Figure(f"two / one, {moment}", "ratio", ratios_of(two, one), MAX_RATIO),
        ]
    return run.finish("process_memory", f"memory of processes that share a model of {SHAPE}'s shape", figures)


if __name__ == "__main__":
    sys.exit(main())
