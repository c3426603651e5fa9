"""The use of Ray: tasks that scan and check, and a pool of actors in which Ray Data embeds blocks.

Ray schedules and restarts. An actor that dies loses its current blocks; Ray Data leaves them out of its
result, and `rounds` gives the missing blocks to Ray Data again.
"""

import asyncio
import json
import logging
import os
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from itertools import accumulate
from typing import Any, TypeVar

import ray
import ray.data
import ray.exceptions
from ray.util.annotations import RayDeprecationWarning

from vecmill.bulk.input_scan import Columns
from vecmill.errors import DeviceLost, SetupError, UnavailableError, VecmillError
from vecmill.values.aliases import JsonValue
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill_ray.bulk import scan
from vecmill_ray.bulk.block_embedding import BulkJob, BulkModel, find_identity, open_embedder
from vecmill_ray.bulk.blocks import BlockCounts, BulkBlock, InputSpan, read_counts
from vecmill_ray.bulk.bulk_manifest import Identity
from vecmill_ray.bulk.bulk_options import ActorPool, choose_pool, describe_wait
from vecmill_ray.bulk.inputs import InputAddress
from vecmill_ray.bulk.rounds import BlockFailure, describe_failure
from vecmill_ray.bulk.scan import SpanScan, group_spans
from vecmill_ray.bulk.storage import SharedStorage

# The blocks that one task checks.
CHECKED_BLOCKS = 64

# One block computes while the next one waits at the actor.
BLOCKS_IN_FLIGHT = 2

# The time after which the command says that it waits for free cores.
ROOM_S = 30.0

# Ray Data handles this many items without effort; more blocks share an item.
MOST_ITEMS = 10_000

T = TypeVar("T")

logger = logging.getLogger(__name__)


def connect() -> None:
    """Connect to the cluster that `RAY_ADDRESS` names or that runs here, or start Ray on this machine."""
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise SetupError(f"Ray cannot be reached: {str(error).partition(chr(10))[0]}") from error
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # The blocks of an actor that died are missing in the result, and are given to Ray Data again.
    context.max_errored_blocks = -1
    context.execution_options.verbose_progress = False
    # Ray Data logs a stack trace for each lost block. `rounds` logs their number.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    # Ray Data's present interface for the restarts of actors will be replaced in Ray 2.64.
    warnings.filterwarnings("ignore", category=RayDeprecationWarning, message=".*ray_remote_args.*")


def disconnect() -> None:
    """Leave the cluster, or stop the Ray that `connect` has started."""
    ray.shutdown()


def count_nodes() -> int:
    """Return the number of nodes that are alive."""
    return len(_nodes())


def plan_pool(cores: int | None, actors: int | None, device: str | None) -> ActorPool:
    """Choose the pool for the nodes of the cluster; see `choose_pool`. Raises `InvalidConfig`."""
    return choose_pool([node["Resources"] for node in _nodes()], cores, actors, device)


def probe_identity(choice: BulkModel, pool: ActorPool) -> Identity:
    """Load the model once on a node, and return its identity. Raises `SetupError`."""
    _wait_for_room(pool.cores, pool.gpus)
    task = ray.remote(_probe).options(num_cpus=pool.cores, num_gpus=pool.gpus)
    identity: Identity = _get(task.remote(choice))
    return identity


def scan_spans(
    scanned: tuple[InputAddress, Sequence[JsonValue], Columns, int], spans: Sequence[InputSpan]
) -> Iterator[tuple[int, SpanScan]]:
    """Scan all spans on the cluster, and return each scan with the index of its span, as they end.

    `scanned` are the first arguments of `scan.scan_spans`. Raises `SetupError`.
    """
    groups = group_spans(spans, int(ray.cluster_resources().get("CPU", 1)))
    starts = list(accumulate(map(len, groups), initial=0))
    for index, scans in _run_all(scan.scan_spans, scanned, groups):
        yield from enumerate(scans, starts[index])


class RayBlocks:
    """The cluster as a `BlockCluster` for one job, with a pool of actors."""

    def __init__(self, job: BulkJob, pool: ActorPool) -> None:
        self._job = job
        self._pool = pool

    def check(self, blocks: Sequence[BulkBlock]) -> list[BlockCounts]:
        """Return the counts of those blocks whose files are complete. Raises `SetupError`."""
        output, digest = self._job.output, self._job.digest
        listed = SharedStorage(output).list_names()
        present = [block for block in blocks if block.file_name(digest) in listed]
        groups = [present[at : at + CHECKED_BLOCKS] for at in range(0, len(present), CHECKED_BLOCKS)]
        found = _run_all(_check, (output, digest), groups)
        return [counts for _, group in found for counts in group]

    def embed(self, blocks: Sequence[BulkBlock]) -> Iterator[BlockCounts | BlockFailure]:
        """Embed the blocks once with Ray Data, and return the outcomes as they arrive.

        There is no outcome for blocks of actors that died.
        """
        _wait_for_room(self._pool.cores, self._pool.gpus)
        items = [{"block": block.to_json()} for block in blocks]
        actors = min(self._pool.actors, len(items))
        outcomes = ray.data.from_items(items, override_num_blocks=min(len(items), MOST_ITEMS)).map_batches(
            BlockActor,
            fn_constructor_args=(self._job,),
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=BLOCKS_IN_FLIGHT),
            num_cpus=self._pool.cores,
            num_gpus=self._pool.gpus,
            # Ray restarts an actor wherever there is room. Its tasks are not retried by the same actor,
            # because they would wait for a node that may never come back.
            max_restarts=-1,
            max_task_retries=0,
        )
        try:
            for row in outcomes.iter_rows():
                found = json.loads(row["outcome"])
                yield BlockFailure(**found) if "message" in found else BlockCounts.from_dict(found)
        except ray.exceptions.RayError as error:
            yield BlockFailure(f"Ray failed: {str(error).strip().splitlines()[-1]}", is_final=False)


class BlockActor:
    """One actor of the pool: a model on an event loop in a thread of its own.

    Errors are returned as outcomes, because Ray Data hides the message of an exception.
    """

    def __init__(self, job: BulkJob) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vecmill-loop", daemon=True).start()
        self._stack = AsyncExitStack()
        self._failure: BlockFailure | None = None
        node = ray.util.get_node_ip_address()
        try:
            self._embedder = self._wait(self._stack.enter_async_context(open_embedder(job, node)))
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            self._failure = describe_failure(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Embed the blocks of a batch, and return their outcomes."""
        return {"outcome": [self._embed(BulkBlock.from_json(str(line))) for line in batch["block"]]}

    def _embed(self, block: BulkBlock) -> str:
        if self._failure is not None:
            return json.dumps(asdict(self._failure))
        try:
            return json.dumps(self._wait(self._embedder.embed(block)).to_dict())
        except (DeviceLost, UnavailableError):
            # This process cannot compute any more. Ray replaces it.
            os._exit(1)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            return json.dumps(asdict(describe_failure(error)))

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _probe(choice: BulkModel) -> Identity:
    return asyncio.run(find_identity(choice))


def _wait_for_room(cores: int, gpus: int = 0) -> None:
    """Wait until a node has this room, and log a warning after `ROOM_S`. Raises `SetupError`."""
    room = ray.remote(_do_nothing).options(num_cpus=cores, num_gpus=gpus).remote()
    if not ray.wait([room], timeout=ROOM_S)[0]:
        logger.warning(describe_wait(cores, gpus))
    _get(room)


def _do_nothing() -> None:
    pass


def _check(output: str, digest: str, blocks: Sequence[BulkBlock]) -> list[BlockCounts]:
    storage = SharedStorage(output)
    found = [read_counts(storage, block, digest) for block in blocks]
    return [counts for counts in found if counts is not None]


def _run_all(
    function: Callable[..., T], common: Sequence[Any], arguments: Sequence[Any]
) -> Iterator[tuple[int, T]]:
    """Call `function` in a task for each argument, after the common arguments.

    Returns each result with its index, as the tasks end.
    """
    if not arguments:
        return
    _wait_for_room(1)
    task = ray.remote(function)
    shared = [ray.put(value) for value in common]
    waiting = {task.remote(*shared, argument): index for index, argument in enumerate(arguments)}
    while waiting:
        for done in ray.wait(list(waiting))[0]:
            yield waiting.pop(done), _get(done)


def _get(reference: Any) -> Any:
    """Return the result of a task. Raises the `VecmillError` that the task raised, or `SetupError`."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, VecmillError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise SetupError(f"Ray failed: {str(error).strip().splitlines()[-1]}") from error


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]
