"""A peer that runs: its start, its embeddings, its loads and its memory."""

import json
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from bench.closed_loop import WARM_S, LoopServer, run_closed_loop
from bench.peers.environments import find_python, find_reason
from bench.peers.loads import LEAST_REQUESTS, SEED, PeerLoad, TextFiles
from bench.peers.models import PreparedModels
from bench.peers.results import LoadFigures
from bench.peers.roster import OFFLINE, PROGRAMS, Peer, Transport
from bench.process_use import memory_mib, processor_s
from bench.program import START_TIMEOUT_S
from support.plain_http import post
from support.server import free_port
from vecmill.errors import SetupError
from vecmill.hardware.cores import available_cores
from vecmill.values.aliases import FloatArray
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.target import MeasuredServer, find_model

STOP_TIMEOUT_S = 30.0
POLL_S = 0.02
IDLE_TIMEOUT_S, IDLE_POLL_S, MAX_IDLE_SHARE = 120.0, 0.5, 0.2
# A slow peer is measured for at most so many times the seconds of the others.
MOST_TIMES = 8
# A load that is repeated takes so many times as long as its first run tells.
SPARE = 1.2
# Texts of one request, or call, when embeddings are compared with the reference.
COMPARED_BATCH = 8
# In process nobody waits at the same time, so a library gets the texts of many clients at once.
TEXTS_A_CALL = 64


class PeerFailed(Exception):
    """A peer did not start, or failed later. Says the last error that it printed."""


@dataclass(frozen=True, slots=True)
class Place:
    """The fields of a peer's command, and the texts of the loads."""

    models: PreparedModels
    texts: TextFiles
    folder: Path
    seconds: int
    optimized: Path | None = None

    def fill(self, peer: Peer, parts: Sequence[str], port: int = 0) -> list[str]:
        """Return the parts of a command with their fields."""
        python = find_python(peer)
        fields = {
            "python": python,
            "bin": python.parent,
            "name": self.models.name,
            "hub_name": self.models.hub_name,
            "source": self.models.source,
            "model": self.models.directory,
            "flat": self.models.flat,
            "optimized": None if self.optimized is None else self.optimized.resolve(),
            "hub": self.models.hub_home,
            "gguf": self.models.gguf,
            "programs": PROGRAMS,
            "folder": self.folder,
            "port": port,
            "cores": available_cores(),
        }
        return [part.format_map(fields) for part in parts]

    def variables(self, peer: Peer) -> dict[str, str]:
        """Return the environment variables of a peer: ours, without settings that change what is served."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")}
        if not peer.is_ours:
            kept.pop("PYTHONPATH", None)
        added = {**OFFLINE, **peer.variables}
        return kept | dict(zip(added, self.fill(peer, list(added.values())), strict=True))


class RunningPeer(Protocol):
    """A peer that answered its first text `ready_s` after its start; `None` if somebody else started it."""

    ready_s: float | None

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Return the embeddings of texts, (texts, dim)."""
        ...

    def measure(self, load: PeerLoad) -> LoadFigures:
        """Run a load."""
        ...

    def memory_mb(self) -> float | None:
        """Return the proportional memory of all its processes, in MB; `None` if it is another machine's."""
        ...


class ServerPeer:
    """A server. `vecmill bench` measures it."""

    def __init__(self, base: str, place: Place, process: "subprocess.Popen[bytes] | None") -> None:
        self._target = MeasuredServer.of(base, ServerApi.EMBEDDINGS, None)
        self._base = base
        self._place = place
        self._process = process
        self._model = place.models.name
        self.ready_s: float | None = None

    def find_model(self) -> None:
        """Name the first model that the server lists, if it lists any, in each request."""
        with suppress(SetupError):
            self._model = find_model(self._target)

    def wait(self, began: float, log: Path) -> None:
        """Return when the server has answered a text. Raises `PeerFailed`."""
        assert self._process is not None
        while True:
            with suppress(OSError, ValueError, HTTPException):
                self.embed(["ready"])
                self.ready_s = time.perf_counter() - began
                return
            if self._process.poll() is not None:
                raise PeerFailed(f"does not start: {find_reason(log.read_text('utf-8', 'replace'))}")
            if time.perf_counter() - began > START_TIMEOUT_S:
                raise PeerFailed(f"was not ready after {START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        answer = post(
            self._target.url, {"model": self._model, "input": list(texts), "encoding_format": "float"}
        )
        return np.array([entry["embedding"] for entry in answer["data"]], np.float32)

    def measure(self, load: PeerLoad) -> LoadFigures:
        if self._process is not None:
            wait_until_idle(self._process.pid)
        seconds, most = self._place.seconds, MOST_TIMES * self._place.seconds
        while True:
            found = self._run_bench(load, seconds)
            is_slow = found.requests is not None and found.requests < load.least_requests
            if not is_slow or seconds == most:
                return found
            seconds = min(_needed_s(found, load, seconds), most)

    def _run_bench(self, load: PeerLoad, seconds: int) -> LoadFigures:
        file = self._place.texts.write(load.texts)
        server = LoopServer(self._base, ServerApi.EMBEDDINGS, self._model, self._place.folder / "bench")
        try:
            found = run_closed_loop(
                server, str(file), clients=load.clients, batch=load.batch, seconds=seconds, seed=SEED
            )
        except (SetupError, subprocess.SubprocessError) as error:
            return LoadFigures(reason=str(error))
        return read_bench(found)

    def memory_mb(self) -> float | None:
        return None if self._process is None else tree_memory_mb(self._process.pid)


def _needed_s(found: LoadFigures, load: PeerLoad, seconds: int) -> int:
    """Return the seconds in which enough requests end, by those that ended in `seconds`."""
    ended = max(found.requests or 0, 1)
    return max(seconds + 1, math.ceil(SPARE * seconds * load.least_requests / ended))


def read_bench(found: Mapping[str, Any]) -> LoadFigures:
    """Return the figures of a result of `vecmill bench`, or the reason why it has none."""
    times_ms = found["latency_ms"]
    if found["errors"]:
        return LoadFigures(reason=f"{found['errors']} requests failed: {found['statuses']}")
    if found["refusal"]:
        return LoadFigures(reason=found["refusal"])
    if found["failure"]:
        return LoadFigures(reason=found["failure"], requests=0)
    return LoadFigures(
        found["texts_per_s"],
        times_ms.get("p50"),
        times_ms.get("p99"),
        requests=found["statuses"]["200"],
        encoding=found["encoding"],
    )


class LibraryPeer:
    """A library in a process of its own, which reads requests from its standard input."""

    def __init__(self, place: Place, process: "subprocess.Popen[bytes]", log: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests: IO[bytes] = process.stdin
        self._answers: IO[bytes] = process.stdout
        self._process = process
        self._place = place
        self._log = log
        self.ready_s: float | None = None

    def wait(self, began: float) -> None:
        """Return when the library has computed a text. Raises `PeerFailed`."""
        self._read()
        self.ready_s = time.perf_counter() - began

    def embed(self, texts: Sequence[str]) -> FloatArray:
        return np.array(self._ask({"embed": list(texts)}), np.float32)

    def measure(self, load: PeerLoad) -> LoadFigures:
        request = {
            "texts": self._place.texts.read_in_order(load.texts),
            "batch": 1 if load.is_latency else max(load.batch, TEXTS_A_CALL if load.batch == 1 else 0),
            "seconds": self._place.seconds,
            "warm_s": min(WARM_S, self._place.seconds),
            "least_calls": LEAST_REQUESTS,
            "most_s": MOST_TIMES * self._place.seconds,
        }
        found = self._ask(request)
        times_ms = (found["p50_ms"], found["p99_ms"])
        return LoadFigures(found["texts_per_s"], *times_ms, "in process", requests=found["calls"])

    def memory_mb(self) -> float | None:
        return tree_memory_mb(self._process.pid)

    def _ask(self, request: Mapping[str, Any]) -> Any:
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._requests.flush()
        return self._read()

    def _read(self) -> Any:
        if not select.select([self._answers], [], [], START_TIMEOUT_S)[0]:
            raise PeerFailed(f"did not answer in {START_TIMEOUT_S:.0f} s")
        line = self._answers.readline()
        if not line:
            raise PeerFailed(f"ended: {find_reason(self._log.read_text('utf-8', 'replace'))}")
        return json.loads(line)


def prepare_peer(peer: Peer, place: Place) -> None:
    """Run the command that a peer needs once. Raises `PeerFailed`."""
    if not peer.prepare:
        return
    command = place.fill(peer, peer.prepare)
    done = subprocess.run(
        command,
        env=place.variables(peer),
        capture_output=True,
        text=True,
        check=False,
        timeout=START_TIMEOUT_S,
    )
    if done.returncode:
        raise PeerFailed(f"cannot be prepared: {find_reason(done.stderr or done.stdout)}")


@contextmanager
def run_peer(peer: Peer, place: Place) -> Iterator[RunningPeer]:
    """Start a peer, or connect to its URL; stop what was started at the end. Raises `PeerFailed`."""
    if peer.url is not None:
        server = ServerPeer(peer.url, place, None)
        server.find_model()
        yield server
        return
    if not peer.command:
        raise PeerFailed(f"no server was named: --url {peer.name}=URL")
    port = free_port()
    log = place.folder / f"{peer.name.replace(' ', '-').replace(',', '')}.log"
    is_server = peer.transport is Transport.HTTP
    with ExitStack() as stack:
        output = stack.enter_context(log.open("wb"))
        began = time.perf_counter()
        process = subprocess.Popen(
            place.fill(peer, peer.command, port),
            stdin=subprocess.DEVNULL if is_server else subprocess.PIPE,
            stdout=output if is_server else subprocess.PIPE,
            stderr=output,
            env=place.variables(peer),
            cwd=None if peer.folder is None else place.fill(peer, [peer.folder])[0],
            start_new_session=True,
        )
        stack.callback(_stop, process)
        if is_server:
            started = ServerPeer(f"http://127.0.0.1:{port}{peer.path}", place, process)
            started.wait(began, log)
            yield started
        else:
            library = LibraryPeer(place, process, log)
            library.wait(began)
            yield library


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop a peer and the processes that it started, which are in one session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
            break
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def tree_memory_mb(pid: int) -> float | None:
    """Return the proportional memory of a process and its descendants, in MB.

    Returns `None` if the memory of the process itself cannot be read, as outside of Linux.
    """
    try:
        total = memory_mib(pid)[1]
    except (OSError, KeyError):
        return None
    for each in _descendants(pid):
        with suppress(OSError, KeyError):  # it has ended
            total += memory_mib(each)[1]
    return total * 2**20 / 1e6


def wait_until_idle(pid: int) -> None:
    """Return when a process and its descendants use little of a core, or after `IDLE_TIMEOUT_S`.

    Some servers compute the requests of the load before, whose clients have gone.
    """
    ends_at = time.perf_counter() + IDLE_TIMEOUT_S
    used_s = _tree_processor_s(pid)
    while time.perf_counter() < ends_at:
        time.sleep(IDLE_POLL_S)
        before_s, used_s = used_s, _tree_processor_s(pid)
        if used_s - before_s < MAX_IDLE_SHARE * IDLE_POLL_S:
            return


def _tree_processor_s(pid: int) -> float:
    total = 0.0
    for each in [pid, *_descendants(pid)]:
        with suppress(OSError):
            total += processor_s(each)
    return total


def _descendants(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text("utf-8").split()):
                yield child
                yield from _descendants(child)


def embed_in_batches(peer: RunningPeer, texts: Sequence[str]) -> FloatArray:
    """Return the embeddings of all texts, (texts, dim)."""
    batches = (texts[place : place + COMPARED_BATCH] for place in range(0, len(texts), COMPARED_BATCH))
    return np.concatenate([peer.embed(batch) for batch in batches])
