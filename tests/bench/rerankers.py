"""Documents a second of a cross-encoder with six layers: vecmill, Infinity and sentence-transformers.

    make bench-rerankers

The model is the embedded one with a random head, so it is for speed alone. A request ranks 50 documents of
45 to 55 words. Servers are measured with one client and with eight; sentence-transformers is called in
process, with 50 pairs a call. All are loaded at once and take turns. The scores of one request are compared
with those of sentence-transformers before.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bench.closed_loop import LoopServer, run_closed_loop
from bench.peer_server import peer_server
from bench.peers.environments import NotInstalled, install_environment
from bench.program import SERVE_WITH_ENGINES, START_TIMEOUT_S, Run, make_parser, start
from bench.report import Figure, at_least, markdown_table, ratios_of
from bench.rigs import remote_process
from support.plain_http import post
from support.server import free_port
from support.source_tree import ROOT
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray
from vecmill_server.bench.request_sets import ServerApi, TextSet, read_texts

SEED = 20_261_129
DOCUMENTS, CLIENTS = 50, 8
QUERY = "Which of these passages explains how the value is computed?"
PLANS = {"vecmill, onnx fp32": ("onnx", "fp32"), "vecmill, openvino bf16": ("openvino", "bf16")}
BASE, REFERENCE = "vecmill, onnx fp32", "sentence-transformers (in process)"
INFINITY = "infinity, torch"
MOST_DIFFERENCE = {BASE: 1e-5, INFINITY: 1e-5}


@dataclass(frozen=True, slots=True)
class Ranked:
    """What was measured in a round: documents a second, and the median of a single client in ms."""

    documents_per_s: float
    one_client_ms: float


@dataclass(frozen=True, slots=True)
class Server:
    """A server of a rerank API, by the base of its URL.

    Infinity's paths have no version, so its base ends in `/`.
    """

    base: str
    model: str
    folder: Path
    seconds: int

    def score(self, documents: Sequence[str]) -> FloatArray:
        """Return the scores of documents in their order."""
        body = {"model": self.model, "query": QUERY, "documents": list(documents)}
        scores = np.zeros(len(documents), np.float32)
        for found in post(f"{self.base.rstrip('/')}/rerank", body)["results"]:
            scores[found["index"]] = found["relevance_score"]
        return scores

    def measure(self) -> Ranked:
        """Run the loads of several clients and of one."""
        many, one = self._run(CLIENTS), self._run(1)
        return Ranked(many["texts_per_s"], one["latency_ms"]["p50"])

    def _run(self, clients: int) -> Mapping[str, Any]:
        server = LoopServer(self.base, ServerApi.RERANK, self.model, self.folder)
        found = run_closed_loop(
            server, TextSet.WORDS_50, clients=clients, batch=DOCUMENTS, seconds=self.seconds, seed=SEED
        )
        assert not found["errors"], found["statuses"]
        return found


class Library:
    """`CrossEncoder.predict` of sentence-transformers, as its users call it, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        from sentence_transformers import CrossEncoder

        self._model = CrossEncoder(str(folder), device="cpu")

    def score(self, documents: Sequence[str]) -> FloatArray:
        """Return the scores of documents in their order, after the sigmoid."""
        pairs = [(QUERY, document) for document in documents]
        return np.asarray(self._model.predict(pairs, batch_size=32, show_progress_bar=False), np.float32)

    def measure(self, documents: Sequence[str], seconds: float) -> Ranked:
        """Rank one request after the other for so many seconds."""
        times_s: list[float] = []
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            first = len(times_s) * DOCUMENTS % (len(documents) - DOCUMENTS)
            self.score(documents[first : first + DOCUMENTS])
            times_s.append(time.perf_counter() - began - spent)
        return Ranked(len(times_s) * DOCUMENTS / sum(times_s), statistics.median(times_s) * 1e3)


def load_library(folder: Path, _cache_dir: Path) -> Library:
    """Load sentence-transformers in its process."""
    return Library(folder)


def save_cross_encoder(folder: Path) -> None:
    """Write the embedded model with a random head of one label."""
    import torch
    from transformers import AutoModelForSequenceClassification

    source = locate_model(None).directory
    torch.manual_seed(SEED)
    model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=1)
    model.save_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"model_max_length": 512, "tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")


def start_servers(run: Run, model: Path) -> dict[str, Server]:
    """Start vecmill with each plan, and Infinity if it can be installed."""
    servers = {}
    for name, (engine, precision) in PLANS.items():
        place = name.replace(", ", "-").replace(" ", "-")
        options = ("--engine", engine, "--precision", precision, "--target-wait-s", "60")
        server = run.serve(
            model,
            *options,
            name=place,
            command=[str(SERVE_WITH_ENGINES)],
            timeout_s=START_TIMEOUT_S,
        )
        servers[name] = Server(f"{server.url}/v1", model.name, run.folder / place, run.options.seconds)
    try:
        install_environment("infinity")
    except NotInstalled as error:
        print(f"Infinity is left out: {error}", flush=True)
        return servers
    port = free_port()
    program = ROOT / ".venv/peer-infinity/bin/infinity_emb"
    command = [str(program), "v2", "--model-id", str(model), "--served-model-name", model.name]
    command += ["--engine", "torch", "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    folder = run.folder / "infinity"
    folder.mkdir()
    url = run.stack.enter_context(peer_server(command, port, folder / "log"))
    servers[INFINITY] = Server(f"{url}/", model.name, folder, run.options.seconds)
    return servers


def write_table(report: Mapping[str, Any]) -> str:
    """Return how a saved report was measured, and its table: a row for each contestant."""
    settings = report["settings"]
    how = (
        f"{report['processor']}, {report['cores']} cores, finished {report['finished_at'][:10]}, load "
        f"average {report['load_average_at_end'][0]:.2f} at the end. "
        f"`make bench-rerankers ROUNDS={settings['rounds']} "
        f'ARGS="--seconds {settings["seconds"]}"`: {settings["rounds"]} rounds, medians.'
    )
    medians = {figure["name"]: figure["median"] for figure in report["figures"]}
    rows = []
    for name in (*PLANS, INFINITY, REFERENCE):
        if name in medians:
            difference = medians.get(f"{name}, largest difference")
            shown = "-" if difference is None else f"{difference:.1e}"
            rows.append([name, f"{medians[name]:.0f}", f"{medians[f'{name}, one client']:.0f}", shown])
    headings = [
        "",
        f"{CLIENTS} clients, documents/s",
        "one client, ms a request",
        "largest difference of a score",
    ]
    return f"{how}\n\n{markdown_table(headings, rows)}"


def list_figures(rounds: Mapping[str, Sequence[Ranked]], differences: Mapping[str, float]) -> list[Figure]:
    """Return the figures of all rounds, and the ratios to the fp32 server."""
    figures = []
    for name, found in rounds.items():
        rates = tuple(each.documents_per_s for each in found)
        figures.append(Figure(name, "documents/s", rates))
        figures.append(Figure(f"{name}, one client", "ms", tuple(each.one_client_ms for each in found)))
    base = [each.documents_per_s for each in rounds[BASE]]
    for name, found in rounds.items():
        if name != BASE:
            ratios = ratios_of(base, [each.documents_per_s for each in found])
            figures.append(at_least(f"{BASE} by {name}", "ratio", ratios, None))
    for name, difference in differences.items():
        figures.append(Figure(f"{name}, largest difference", "", (difference,), MOST_DIFFERENCE.get(name)))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=3, seconds=8)
    with start(parser, arguments, seed=SEED) as run:
        model = run.folder / "six-layer-cross-encoder"
        save_cross_encoder(model)
        documents = read_texts(TextSet.WORDS_50, 2_000, SEED)
        library = run.stack.enter_context(remote_process(load_library, model, run.folder / "cache"))
        reference = library("score", documents[:DOCUMENTS])
        servers = start_servers(run, model)
        differences = {
            name: float(np.abs(server.score(documents[:DOCUMENTS]) - reference).max())
            for name, server in servers.items()
        }
        measures: dict[str, Callable[[], Ranked]] = {name: server.measure for name, server in servers.items()}
        measures[REFERENCE] = lambda: library("measure", documents, float(run.options.seconds))
        rounds: dict[str, list[Ranked]] = {name: [] for name in measures}
        for number in range(run.options.rounds):
            for name, measure in measures.items():
                rounds[name].append(found := measure())
                told = f"{found.documents_per_s:.0f} documents/s, one client {found.one_client_ms:.1f} ms"
                print(f"round {number + 1}, {name}: {told}", flush=True)
        return run.finish("rerankers", "50 documents of a query", list_figures(rounds, differences))


if __name__ == "__main__":
    sys.exit(main())
