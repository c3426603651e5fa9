"""Embeddings in each encoding of responses: texts per second, bytes and processor time for each text.

    make bench-encodings

The engine is the fake one, each request has the same token ids many times, and equal inputs share one
computation, so nearly all time is spent on reading small requests, writing responses and sending them. The
encodings take turns on one server. The load comes from wrk, which counts the bytes of responses and decodes
none; its share of a core is reported, and the run fails if that may have been the limit. The processor times
are those of the scheduler, so they depend little on what else runs. "Writing" is the fastest of many calls of
the code that makes the body of a response, in one thread without a server.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from bench.process_use import read_times
from bench.processes import run_watched_load
from bench.program import SERVE_WITH_ENGINES, Run, make_parser, start, take_turns
from bench.report import Figure, ratios_of
from support.server import LiveServer
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.results import EmbedResult, Timings
from vecmill_server.base.json_io import encode_json
from vecmill_server.base.settings import TokenIds
from vecmill_server.bench.load_results import MAX_PROCESSOR_SHARE
from vecmill_server.dialects.dialect import Envelope
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.token_ids import choose_ids_reader

ROUTE = "/v1/embeddings"
SEED = 20_261_125
TOKEN_IDS = [101, 102, 103]
ENCODINGS: Mapping[str, Mapping[str, str]] = {
    "JSON numbers": {"encoding_format": "float"},
    "base64, float32": {"encoding_format": "base64"},
    "base64, float16": {"encoding_format": "base64", "embed_dtype": "float16"},
    "bytes, float32": {"encoding_format": "bytes"},
    "bytes_only, float32": {"encoding_format": "bytes_only"},
    "bytes_only, float16": {"encoding_format": "bytes_only", "embed_dtype": "float16"},
    "bytes_only, fp8_e4m3": {"encoding_format": "bytes_only", "embed_dtype": "fp8_e4m3"},
    "bytes_only, ubinary": {"encoding_format": "bytes_only", "output_dtype": "ubinary"},
}
WRITES = 200


@dataclass(frozen=True, slots=True)
class EncodingRun:
    """One load in one encoding. `server_us` is the processor time of the server for each text.

    `wrk_share` is the share of one core that wrk took.
    """

    texts_per_s: float
    server_us: float
    wrk_share: float


def request_body(encoding: Mapping[str, str], texts: int) -> dict[str, Any]:
    """Return the body of a request with this number of texts."""
    return {"input": [TOKEN_IDS] * texts, **encoding}


def bytes_per_text(url: str, body: Mapping[str, Any]) -> float:
    """Return the bytes of a response, its headers included, for each text of its request."""
    answer = httpx.post(url + ROUTE, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    head = sum(len(name) + len(value) + len(b": \r\n") for name, value in answer.headers.raw)
    return (head + len(answer.content)) / len(body["input"])


def writing_us(body: Mapping[str, Any], dim: int) -> float:
    """Return the microseconds of the fastest of many calls that write a response, for each of its texts."""
    asked = EmbeddingsRequest.parse(
        body, DialectOptions(choose_ids_reader(TokenIds.NATIVE), lambda _name, _tasks=(), /: None)
    )
    texts = len(body["input"])
    rows = np.random.default_rng(SEED).standard_normal((texts, dim), np.float32)
    result = EmbedResult(rows, (3,) * texts, Timings(0.0, 0.0, 0.0, 0.0))
    envelope = Envelope("id", "model", 0)
    times_s = []
    for _ in range(WRITES):
        began = time.perf_counter()
        if asked.write_raw is not None:
            asked.write_raw(result, envelope)
        else:
            encode_json(asked.write(result, envelope))
        times_s.append(time.perf_counter() - began)
    return 1e6 * min(times_s) / texts


def measure_encoding(server: LiveServer, bodies: Path, options: argparse.Namespace) -> EncodingRun:
    """Run one load."""
    pids = [server.process.pid]
    before = read_times(pids)
    found, wrk_share = run_watched_load(server.url, bodies, options, route=ROUTE)
    spent = read_times(pids).since(before)
    server_s = sum(spent.loops) + sum(spent.others)
    return EncodingRun(
        texts_per_s=found.rate * options.texts,
        server_us=1e6 * server_s / (found.requests * options.texts),
        wrk_share=wrk_share,
    )


def figures_of(
    runs: Mapping[str, Sequence[EncodingRun]], sizes: Mapping[str, float], writing: Mapping[str, float]
) -> list[Figure]:
    """Return the figures of each encoding, and the ratio of its rate to that of base64.

    `sizes` are the bytes, and `writing` the microseconds of writing, for each text.
    """
    usual = runs["base64, float32"]
    figures: list[Figure] = []
    for name, found in runs.items():
        ratios = ratios_of((one.texts_per_s for one in found), (one.texts_per_s for one in usual))
        figures += [
            Figure(name, "texts/s", tuple(run.texts_per_s for run in found)),
            Figure(f"{name}: against base64", "ratio", ratios),
            Figure(f"{name}: response", "bytes/text", (sizes[name],)),
            Figure(f"{name}: writing", "us/text", (writing[name],)),
            Figure(f"{name}: server", "us/text", tuple(run.server_us for run in found)),
            Figure(f"{name}: wrk", "cores", tuple(run.wrk_share for run in found), MAX_PROCESSOR_SHARE),
        ]
    return figures


def measure_all(run: Run) -> list[Figure]:
    """Measure every encoding on one server, in turn."""
    options = run.options
    tiny = TinyBert(config={"hidden_size": options.dim, "num_hidden_layers": 1})
    model = save_tiny_bert(run.folder / "model", tiny)
    serving = ("--engine", "fake", "--token-ids", "native", "--no-access-log", "--target-wait-s", "60")
    server = run.serve(model, *serving, command=[str(SERVE_WITH_ENGINES)])
    runs: dict[str, list[EncodingRun]] = {name: [] for name in ENCODINGS}
    sizes, writing, files = {}, {}, {}
    for name, encoding in ENCODINGS.items():
        body = request_body(encoding, options.texts)
        sizes[name] = bytes_per_text(server.url, body)
        writing[name] = writing_us(body, options.dim)
        files[name] = run.folder / f"{name}.jsonl"
        files[name].write_text(json.dumps(body) + "\n", "utf-8")
    for counts, name in take_turns(ENCODINGS, options.rounds):
        found = measure_encoding(server, files[name], options)
        if counts:
            runs[name].append(found)
    return figures_of(runs, sizes, writing)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5, seconds=4)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--texts", type=int, default=32, help="Texts of a request.")
    parser.add_argument("--dim", type=int, default=1024, help="Dimensions of an embedding.")
    with start(parser, arguments, needs_wrk=True) as run:
        figures = measure_all(run)
    return run.finish("encodings", "fake engine, embeddings in each encoding", figures)


if __name__ == "__main__":
    sys.exit(main())
