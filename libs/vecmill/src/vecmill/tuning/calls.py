"""Workers from the outside: starting them, asking them, ending them."""

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

from vecmill.engines.base import Survey
from vecmill.plan import Precision
from vecmill.tuning.documents import Document
from vecmill.tuning.search import CandidateFailed

COMMAND = (sys.executable, "-m", "vecmill.tuning.worker")
SURVEY_TIMEOUT_S = 60.0
_TAIL_BYTES = 2000
_END_TIMEOUT_S = 3.0


class Worker:
    """A process that answers one question at a time, as `vecmill.tuning.worker` says."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the worker
        # A group of its own, so that Ctrl-C reaches us alone and we end it in order.
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

    def ask(self, what: str, *, timeout_s: float, **details: Any) -> Document:
        """The answer to one request. Raises `CandidateFailed` with the reason if there is none."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, **details}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise CandidateFailed(self._last_words()) from error
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise CandidateFailed(f"it took longer than {timeout_s:.0f} s to {what}") from None
        if not line:
            raise CandidateFailed(self._last_words())
        answer: Document = json.loads(line)
        if "error" in answer:
            raise CandidateFailed(answer["error"])
        return answer

    def close(self) -> None:
        """End the process and what it has started, by force if it does not go by itself. Twice is fine."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):  # what was not sent any more
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
        """How the process ended, for a report."""
        status = self._process.wait(_END_TIMEOUT_S)
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - _TAIL_BYTES))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"its process {ended}" + (f": {lines[-1]}" if lines else "")


def survey_engine(name: str) -> Survey:
    """What engine `name` finds here, asked of a process of its own: importing a runtime is no small thing.

    Raises `CandidateFailed`.
    """
    worker = Worker()
    try:
        return _read_survey(worker.ask("survey", timeout_s=SURVEY_TIMEOUT_S, engine=name))
    finally:
        worker.close()


def _read_survey(found: Mapping[str, Any]) -> Survey:
    devices = {device: tuple(map(Precision, offered)) for device, offered in found["devices"].items()}
    return Survey(devices, tuple(found["length_multiples"]))
