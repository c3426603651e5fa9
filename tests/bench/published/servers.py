"""The servers of classifiers that the published tables compare: vecmill, and transformers behind FastAPI."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.classifier_inputs import Answer, Inputs
from bench.peer_server import peer_server
from bench.processors import pinned
from bench.program import SERVE_WITH_ENGINES, START_TIMEOUT_S
from support.plain_http import post
from support.server import LiveServer, free_port, live_server
from support.source_tree import ROOT
from vecmill.engines import ENGINES, find_engine
from vecmill.values.engine_plan import EnginePlan, Precision

GUNICORN = ROOT / ".venv/peer-fastapi/bin/gunicorn"
FASTAPI = "transformers behind FastAPI"
NOT_INSTALLED = "not measured, because `make .venv/peer-fastapi/ready` did not run"
# A request may take minutes, and the queue may be as long as the load makes it. None is refused.
PATIENT = ("--target-wait-s", "3600", "--timeout-s", "3600", "--max-queue-tokens", "100000000")
SEED = 20_260_105
TOLERANCE = 1e-4
EXACT = EnginePlan("onnx", Precision.FP32)
REDUCED = (
    EnginePlan("onnx", Precision.INT8),
    EnginePlan("onnx", Precision.INT8_FAST),
    EnginePlan("openvino", Precision.BF16),
    EnginePlan("openvino", Precision.INT8),
)
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


def best_answer(answer: Sequence[Mapping[str, object]]) -> Answer:
    """The first label of what `/predict` gave."""
    return Answer(str(answer[0]["label"]), float(str(answer[0]["score"])))


def check_answers(found: Mapping[str, Answer], expected: Mapping[str, Answer]) -> float:
    """The largest difference of a score. Raises `AssertionError` for another label, or above `TOLERANCE`."""
    largest = 0.0
    for text, wanted in expected.items():
        got = found[text]
        difference = abs(got.score - wanted.score)
        assert got.label == wanted.label, f"{got} where the pipeline says {wanted}: {text[:60]}"
        assert difference <= TOLERANCE, f"{got} where the pipeline says {wanted}: {text[:60]}"
        largest = max(largest, difference)
    return largest


def wait_for_left_requests(url: str, bodies: Path) -> None:
    """Send the first request twice, and wait for both answers.

    Then the server has computed the requests that wrk left open, and does not slow down the next contestant.
    """
    with bodies.open("rb") as file:
        body = json.loads(file.readline())
    for _ in range(2):
        post(f"{url}/predict", body)


def name_plan(plan: EnginePlan) -> str:
    """What a column is called."""
    return f"{plan.engine} {plan.precision}"


def plans_here() -> list[EnginePlan]:
    """fp32, and what else the engines that are installed offer on this processor."""
    offered = {
        name: find_engine(name).find_capabilities().devices.get("cpu", ())
        for name in {plan.engine for plan in REDUCED}
        if ENGINES[name].is_installed
    }
    return [EXACT, *(plan for plan in REDUCED if plan.precision in offered.get(plan.engine, ()))]


def start_vecmill(
    stack: ExitStack, folder: Path, inputs: Inputs, plan: EnginePlan, processors: Sequence[int]
) -> LiveServer:
    """Start a server on these processors, which answers each text. In fp32 it agrees with the pipeline.

    Raises `NotStarted`, for example if the weights lose too much accuracy in the precision of `plan`.
    """
    place = folder / name_plan(plan).replace(" ", "-")
    place.mkdir(parents=True, exist_ok=True)  # of a former server, with the prepared weights
    print(f"starting {name_plan(plan)} ...")
    arguments = [str(inputs.model), "--engine", plan.engine, "--precision", str(plan.precision), *PATIENT]
    command = [*pinned(processors), str(SERVE_WITH_ENGINES)]
    server = stack.enter_context(
        live_server(place, arguments=arguments, command=command, timeout_s=START_TIMEOUT_S)
    )
    print(f"{name_plan(plan)} is ready after {server.ready_after_s:.1f} s")
    found = {text: best_answer(post(f"{server.url}/predict", {"inputs": text})) for text in inputs.answers}
    if plan == EXACT:
        print(f"scores differ from the pipeline's by at most {check_answers(found, inputs.answers):.1e}")
    return server


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
    with peer_server(command, port, log) as url:
        found = {text: best_answer(post(f"{url}/predict", {"inputs": text})) for text in inputs.answers}
        if not options.is_quantized:
            check_answers(found, inputs.answers)
        yield url


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
