"""Control of worker processes by the caller: start, requests and end."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from vecmill.commands.optimize.search import CandidateFailed
from vecmill.engines.base import EngineCapabilities
from vecmill.serving_plan.plans import JsonObject
from vecmill.values.engine_plan import Precision

COMMAND = (sys.executable, "-m", "vecmill.commands.optimize.worker")
CAPABILITIES_TIMEOUT_S = 60.0
_TAIL_BYTES = 2000
_END_TIMEOUT_S = 3.0


class Worker:
    """A worker process (`vecmill.commands.optimize.worker`), which answers one request at a time."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the worker
        # With a process group of its own, Ctrl-C reaches only the parent, which then ends the worker.
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
            process_group=0,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="vecmill-worker", daemon=True)
        self._reader.start()

    def request(self, action: str, *, timeout_s: float, **details: Any) -> JsonObject:
        """Send one request and return the response. Raises `CandidateFailed` with the reason of a failure."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": action, **details}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise CandidateFailed(self._last_words()) from error
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise CandidateFailed(f"{action} took longer than {timeout_s:.0f} s") from None
        if not line:
            raise CandidateFailed(self._last_words())
        answer: JsonObject = json.loads(line)
        if "error" in answer:
            raise CandidateFailed(answer["error"])
        return answer

    def close(self) -> None:
        """End the process and its children, by force after a timeout. May be called twice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):  # unsent data
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _last_words(self) -> str:
        """Return a description of how the process ended, with the last line of its log."""
        status = self._process.wait(_END_TIMEOUT_S)
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - _TAIL_BYTES))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"its process {ended}" + (f": {lines[-1]}" if lines else "")


def find_engine_capabilities(name: str) -> EngineCapabilities:
    """Return the capabilities of engine `name`, from a process of its own, since runtimes take much memory.

    Raises `CandidateFailed`.
    """
    worker = Worker()
    try:
        return _read_survey(
            worker.request("find_capabilities", timeout_s=CAPABILITIES_TIMEOUT_S, engine=name)
        )
    finally:
        worker.close()


def _read_survey(found: Mapping[str, Any]) -> EngineCapabilities:
    devices = {device: tuple(map(Precision, offered)) for device, offered in found["devices"].items()}
    return EngineCapabilities(devices, tuple(found["length_multiples"]))
