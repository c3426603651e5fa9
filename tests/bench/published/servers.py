"""The servers of classifiers that the published tables compare: vecmill, and transformers behind FastAPI."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.distilbert import EXACT, best_answer, check_answers, name_plan, plans_here, start_server
from bench.distilbert_inputs import Inputs
from bench.processors import pinned
from bench.program import SERVE_WITH_ENGINES
from bench.published.bulk_peers import peer_environment
from support.plain_http import post
from support.server import LiveServer, free_port, stop_server, wait_until_ready
from support.source_tree import ROOT
from vecmill.values.engine_plan import EnginePlan, Precision

GUNICORN = ROOT / ".venv/peer-fastapi/bin/gunicorn"
FASTAPI = "transformers behind FastAPI"
NOT_INSTALLED = "not measured, because `make .venv/peer-fastapi/ready` did not run"
START_S = 300.0
# A request may take minutes, and the queue may be as long as the load makes it. None is refused.
PATIENT = ("--target-wait-s", "3600", "--timeout-s", "3600", "--max-queue-tokens", "100000000")
# Precisions that lose some accuracy. The first that the processor offers is measured beside fp32.
TUNED = (
    EnginePlan("openvino", Precision.BF16),
    EnginePlan("openvino", Precision.INT8),
    EnginePlan("onnx", Precision.INT8),
)


@dataclass(frozen=True, slots=True)
class FastApiOptions:
    """How the server of transformers runs (`bench.published.fastapi_server`)."""

    workers: int = 1
    is_tuned: bool = False
    is_quantized: bool = False

    def app(self, model: Path) -> str:
        """The argument of gunicorn that names the app."""
        options = f"is_tuned={self.is_tuned}, is_quantized={self.is_quantized}"
        return f"fastapi_server:make_app({str(model)!r}, {options})"


def exact_and_tuned() -> list[EnginePlan]:
    """The plan in fp32, and the first plan of `TUNED` that this processor offers."""
    offered = plans_here()
    return [EXACT, *[plan for plan in TUNED if plan in offered][:1]]


def start_vecmill(
    stack: ExitStack, folder: Path, inputs: Inputs, plan: EnginePlan, processors: Sequence[int]
) -> LiveServer:
    """Start a server on these processors. In fp32 it agrees with transformers' pipeline.

    Raises `NotStarted`, for example if the weights lose too much accuracy in the precision of `plan`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [*pinned(processors), str(SERVE_WITH_ENGINES)]
    return start_server(stack, folder, inputs, plan, command, arguments=PATIENT)


@contextmanager
def fastapi_server(
    folder: Path, inputs: Inputs, options: FastApiOptions, processors: Sequence[int]
) -> Iterator[str]:
    """Serve the model by gunicorn on these processors; give the URL.

    The answers are those of the pipeline, unless the layers are quantised. Raises `NotStarted`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, port = folder / "gunicorn.log", free_port()
    command = [*pinned(processors), str(GUNICORN), options.app(inputs.model), "--timeout", "3600"]
    command += ["--pythonpath", str(Path(__file__).parent), "--worker-class", "uvicorn_worker.UvicornWorker"]
    command += ["--workers", str(options.workers), "--bind", f"127.0.0.1:{port}"]
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=peer_environment()
        )
    try:
        wait_until_ready(url, process, log, deadline=perf_counter() + START_S, path="/docs")
        found = {text: best_answer(post(f"{url}/predict", {"inputs": text})) for text in inputs.answers}
        if not options.is_quantized:
            check_answers(found, inputs.answers)
        yield url
    finally:
        stop_server(process)


def write_requests(file: Path, groups: Sequence[Sequence[str]]) -> Path:
    """Write a request to `/predict` for each group of texts, one a line."""
    lines = [json.dumps(request_body(texts), ensure_ascii=False) + "\n" for texts in groups]
    file.write_text("".join(lines), encoding="utf-8")
    return file


def request_body(texts: Sequence[str]) -> dict[str, Any]:
    """Return the body of a request to `/predict`, as vecmill and transformers behind FastAPI take it."""
    # Two strings in a list would be a pair of texts.
    return {"inputs": texts[0] if len(texts) == 1 else [[text] for text in texts]}


def vecmill_name(plan: EnginePlan) -> str:
    """The name of the server with a plan, in tables."""
    return f"vecmill {name_plan(plan)}"
