"""Infinity and fastembed for the table of bulk requests, in the environments of `make bench-peers`."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peer_server import peer_environment, peer_server
from support.exported_models import export_graph, quantize
from support.server import NotStarted, free_port
from support.source_tree import ROOT

# The environments of infinity's engines.
INFINITY: Mapping[str, str] = {"torch": "infinity", "optimum": "infinity-optimum"}
FASTEMBED = ROOT / ".venv/peer-fastembed/bin/python"
FASTEMBED_PROGRAM = Path(__file__).with_name("fastembed_program.py")


def infinity_program(engine: str) -> Path:
    """Return the program of infinity in the environment that has the packages of an engine."""
    return ROOT / f".venv/peer-{INFINITY[engine]}/bin/infinity_emb"


def export_model(model: Path, folder: Path, *, is_int8: bool = False) -> Path:
    """Copy a BERT into `folder`, with an ONNX graph as optimum writes it; return the copy's directory.

    The graph is beside the configuration, since infinity looks for the configuration there. With `is_int8` it
    is quantised by ONNX Runtime's own tool. An existing copy is kept.
    """
    copy = folder / ("model-int8" if is_int8 else "model-fp32")
    graph = copy / "model.onnx"
    if not copy.exists():
        shutil.copytree(model, copy)
        export_graph(model, graph, "BertModel")
        if is_int8:
            quantize(graph, graph.with_name("model_quantized.onnx"), per_channel=True)
            graph.unlink()
    return copy


@contextmanager
def infinity_server(model: Path, folder: Path, engine: str) -> Iterator[str]:
    """Serve a model of CLS pooling by infinity on a free port; give the URL. Raises `NotStarted`.

    It is served from its own directory, because infinity takes an absolute path for a name on a hub.
    """
    port, log = free_port(), folder / f"infinity-{engine}.log"
    command = [str(infinity_program(engine)), "v2", "--model-id", ".", "--engine", engine]
    command += ["--device", "cpu", "--pooling-method", "cls", "--host", "127.0.0.1", "--port", str(port)]
    with peer_server(command, port, log, ready="/health", folder=model) as url:
        yield f"{url}/"


def run_fastembed(model: Path, requests: Sequence[Sequence[str]], compared: Sequence[str]) -> Any:
    """Run fastembed in its environment, one request after another.

    Returns the `seconds` of all requests, and the `embeddings` of `compared`. Raises `NotStarted`.
    """
    given = json.dumps({"model": str(model), "requests": requests, "compared": compared})
    done = subprocess.run(
        [str(FASTEMBED), str(FASTEMBED_PROGRAM)],
        input=given,
        capture_output=True,
        text=True,
        env=peer_environment(),
        check=False,
    )
    if done.returncode:
        raise NotStarted(f"fastembed failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
