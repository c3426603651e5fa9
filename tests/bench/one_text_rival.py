"""One client that sends one text at a time, beside ONNX Runtime behind FastAPI.

make bench-one-text

The other server (`bench.published.fastapi_onnx_server`) is what people write themselves: the model as optimum
exports it, tokenised and computed on the event loop. Both servers use all cores, run all the time, and take
turns with the load. Before, their embeddings are compared.
"""

import base64
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.generator import run_load, write_bodies
from bench.peer_server import peer_server
from bench.program import SERVE, make_parser, start
from bench.report import Figure, ratios_of
from support.exported_models import export_graph
from support.plain_http import post
from support.server import free_port
from support.source_tree import ROOT
from support.texts import long_texts, medium_texts, short_texts
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model

SEED = 20_261_126
TEXTS = 400
PROMISED_RATIO = 1.0
AGREEMENT = 1e-4
PEER = ROOT / ".venv/peer-fastapi-onnx/bin/uvicorn"
# By kind of text; the longest are cut to the 256 tokens that the model reads.
KINDS: Mapping[str, Callable[[int, int], list[str]]] = {
    "5 to 20 words": short_texts,
    "50 words": medium_texts,
    "256 tokens": long_texts,
}


@contextmanager
def serve_rival(folder: Path) -> Iterator[str]:
    """Serve the embedded model by ONNX Runtime behind FastAPI; give the URL."""
    model = describe_model(locate_model(None)).directory
    export_graph(model, folder / "model.onnx", "BertModel")
    shutil.copy(model / "tokenizer.json", folder / "tokenizer.json")
    log, port = folder / "uvicorn.log", free_port()
    command = [str(PEER), "--app-dir", str(Path(__file__).parent / "published"), "--factory"]
    command += ["fastapi_onnx_server:make_app", "--port", str(port), "--no-access-log"]
    with peer_server(command, port, log, variables={"VECMILL_PEER_MODEL": str(folder)}) as url:
        yield url


def embed_by(url: str, text: str) -> Any:
    """Return the embedding of a text from a server."""
    body = {"input": text, "model": "all-MiniLM-L6-v2", "encoding_format": "base64"}
    found = post(f"{url}/v1/embeddings", body)
    return np.frombuffer(base64.b64decode(found["data"][0]["embedding"]), np.float32)


def check_agreement(ours: str, theirs: str, texts: Sequence[str]) -> None:
    """Raise `AssertionError` unless both servers give the same embeddings."""
    for text in texts:
        worst = float(np.abs(embed_by(ours, text) - embed_by(theirs, text)).max())
        assert worst < AGREEMENT, f"the embeddings of a text differ by {worst}"


def main(arguments: Sequence[str] | None = None) -> int:
    dice = random.Random(SEED)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    parser = make_parser(__doc__, rounds=5, seconds=5, serve=SERVE)
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        rival = run.folder / "rival"
        rival.mkdir()
        urls = {"vecmill": run.serve().url, "FastAPI": run.stack.enter_context(serve_rival(rival))}
        bodies = {
            kind: write_bodies(run.folder / f"{kind}.jsonl", make(SEED, TEXTS))
            for kind, make in KINDS.items()
        }
        check_agreement(urls["vecmill"], urls["FastAPI"], [make(SEED, 1)[0] for make in KINDS.values()])
        for _ in range(run.options.rounds):
            for kind in KINDS:
                for name in dice.sample(list(urls), len(urls)):
                    load = run_load(urls[name], bodies[kind], connections=1, duration_s=run.options.seconds)
                    found[kind, name].append(load.p50_s * 1e3)
    figures = []
    for kind in KINDS:
        ours, theirs = found[kind, "vecmill"], found[kind, "FastAPI"]
        figures += [
            Figure(f"{kind}: vecmill, median", "ms", tuple(ours)),
            Figure(f"{kind}: ONNX Runtime behind FastAPI, median", "ms", tuple(theirs)),
            Figure(f"{kind}: vecmill / FastAPI", "", ratios_of(ours, theirs), PROMISED_RATIO),
        ]
    return run.finish("one-text", "one client, one text at a time, base64", figures)


if __name__ == "__main__":
    sys.exit(main())
