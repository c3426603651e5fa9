"""The servers that requests are sent to: of different models, options and states."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from support.batches import create_batch, ended, request_line, retrieve, upload
from support.described_models import PROMPTS, describe_tasks, token_ids
from support.http_server import (
    PATIENCE_S,
    QUIET,
    HttpServer,
    SlowToLoad,
    build_service,
    fake_engine,
    run_in_thread,
    serve_in_thread,
    wait_until,
)
from vecmill.config import BatchConfig, InputConfig, MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.errors import LoadFailed
from vecmill.models import ModelDescription, Task
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel
from vecmill_server.base.settings import RerankDocument, TokenIds

# A text that every engine fails at.
POISON = "poison"
FAULTS = FaultScript(poison=frozenset({int(token_ids(POISON)[1])}))
MOST_INPUTS = 6
MOST_BODY_BYTES = 20_000
QUEUE_TEXTS = 4
# A full server stays full for longer than the tests take.
FULL_S = 3600.0
EVERY_TASK = "every task"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that takes requests, and the ids that may stand in the paths of requests to it."""

    client: httpx.Client = field(repr=False)
    ids: Mapping[str, str] = field(default_factory=dict)


class Unloadable(FakeEngine):
    """An engine that cannot be started."""

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        raise LoadFailed("The engine cannot be started.")


def _describe_all() -> list[ModelDescription]:
    """A model for each task, with prompts."""
    return [replace(model, prompts=PROMPTS, default_prompt_name=None) for model in describe_tasks().values()]


@contextmanager
def _every_task(folder: Path, **options: Any) -> Iterator[Server]:
    """All models, with small limits, a place for batches, and some files and batches in it."""
    settings = replace(QUIET, batch_dir=folder, max_body_bytes=MOST_BODY_BYTES, **options)
    config = MillConfig(inputs=InputConfig(max_inputs=MOST_INPUTS))
    models = [(model, fake_engine(model, FAULTS)) for model in _describe_all()]
    with (
        run_in_thread(build_service(settings, models, config=config)) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        yield Server(client, _fill(client))


def _fill(client: httpx.Client) -> dict[str, str]:
    """Make files and batches, of which one has failed, and return their ids."""
    lines = [request_line("good", {"input": "a"}), request_line("bad", {"input": []})]
    completed = ended(client, create_batch(client, lines, metadata={"who": "me"}))
    failed = ended(client, create_batch(client, ["no request"]))
    return {
        "file_id": completed["input_file_id"],
        "output_file_id": completed["output_file_id"],
        "deleted_file_id": upload(client, lines),
        "batch_id": completed["id"],
        "failed_batch_id": failed["id"],
        "model": "model/embed",
    }


@contextmanager
def _one_task(task: Task, _folder: Path) -> Iterator[Server]:
    with serve_in_thread(models=[describe_tasks()[task]]) as server:
        yield Server(server.client)


@contextmanager
def _without_files(folder: Path) -> Iterator[Server]:
    with serve_in_thread(replace(QUIET, batch_dir=folder)) as server:
        yield Server(server.client)


# For each task that TEI has, the path and the body of a request of so many texts.
_WORK: Mapping[Task, tuple[str, Callable[[int], dict[str, Any]]]] = {
    Task.EMBED: ("/embed", lambda count: {"inputs": [f"text {count} {each}" for each in range(count)]}),
    Task.SPARSE: (
        "/embed_sparse",
        lambda count: {"inputs": [f"text {count} {each}" for each in range(count)]},
    ),
    Task.CLASSIFY: (
        "/predict",
        lambda count: {"inputs": [[f"text {count} {each}"] for each in range(count)]},
    ),
}


@contextmanager
def _full(task: Task, folder: Path) -> Iterator[Server]:
    """A model that computes a text without end, and has as many waiting as it accepts."""
    model = describe_tasks()[task]
    engine = FakeEngine(
        dim=model.dim,
        lane_widths=(1,),
        output_shape=model.output_shape,
        faults=FaultScript(calls={0: Fault.HANG}),
    )
    queue = QueueConfig(max_queue_texts=QUEUE_TEXTS, timeout_s=FULL_S)
    config = MillConfig(cores=1, queue=queue, batch=BatchConfig(max_batch_tokens=4), hang_s=FULL_S)
    settings = replace(QUIET, batch_dir=folder)
    with serve_in_thread(settings, config=config, engine=engine, models=[model]) as server:
        sending = [_occupy(server, task, 1)]
        wait_until(lambda: len(engine.calls) == 1)
        sending.append(_occupy(server, task, QUEUE_TEXTS))
        yield Server(server.client, _start_batches(server.client) if task is Task.EMBED else {})
        engine.released.set()
        for thread in sending:
            thread.join()


def _start_batches(client: httpx.Client) -> dict[str, str]:
    """Make a batch that does not end, and one to cancel, and return their ids."""
    lines = [request_line("a", {"input": "a"})]
    batch_id, cancelled_batch_id = create_batch(client, lines), create_batch(client, lines)
    wait_until(lambda: retrieve(client, batch_id)["status"] == "in_progress")
    file_id = retrieve(client, batch_id)["input_file_id"]
    return {"batch_id": batch_id, "cancelled_batch_id": cancelled_batch_id, "file_id": file_id}


def _occupy(server: HttpServer, task: Task, count: int) -> threading.Thread:
    """Send a request of so many texts, and return when it has been admitted."""
    path, make_body = _WORK[task]

    def admitted() -> float:
        return server.metric("vecmill_texts_admitted_total", model=f"model/{task}")

    wanted = admitted() + count
    sending = {"json": make_body(count), "timeout": FULL_S}
    thread = threading.Thread(target=server.client.post, args=(path,), kwargs=sending)
    thread.start()
    wait_until(lambda: admitted() == wanted)
    return thread


@contextmanager
def _loading(_folder: Path) -> Iterator[Server]:
    """A server whose model is still loading."""
    engine = SlowToLoad()
    with serve_in_thread(engine=engine, wait=False) as server:
        try:
            yield Server(server.client)
        finally:
            engine.may_load.set()


@contextmanager
def _one_failed(_folder: Path) -> Iterator[Server]:
    """A server of two models, of which one could not be loaded."""
    models = describe_tasks()
    broken = Unloadable(dim=models[Task.EMBED].dim)
    two = [models[Task.EMBED], models[Task.RERANK]]
    with serve_in_thread(QUIET, engine=broken, models=two) as server:
        yield Server(server.client)


START: Mapping[str, Callable[[Path], AbstractContextManager[Server]]] = {
    EVERY_TASK: _every_task,
    "native token ids": partial(_every_task, token_ids=TokenIds.NATIVE),
    "documents as strings": partial(_every_task, rerank_document=RerankDocument.STRING),
    "any model name": partial(_every_task, alias=("*",), token_ids=TokenIds.NATIVE),
    "embedder alone": partial(_one_task, Task.EMBED),
    "reranker alone": partial(_one_task, Task.RERANK),
    "classifier alone": partial(_one_task, Task.CLASSIFY),
    "no files": _without_files,
    "full of texts to embed": partial(_full, Task.EMBED),
    "full of sparse texts": partial(_full, Task.SPARSE),
    "full of texts to classify": partial(_full, Task.CLASSIFY),
    "loading": _loading,
    "one model failed": _one_failed,
}


class Servers:
    """The servers by name, each started when it is first asked for."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._running: dict[str, Server] = {}

    def find(self, name: str) -> Server:
        """The server of this name."""
        if name not in self._running:
            folder = self._folder / name.replace(" ", "_")
            folder.mkdir()
            self._running[name] = self._stack.enter_context(START[name](folder))
        return self._running[name]
