"""A process that stays, because it takes longer to start than to answer."""

import atexit
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock, Timer
from typing import Any

PATIENCE_S = 300.0


class LineProcess:
    """A process that answers each line of JSON with one of its own, and ends with that of the tests."""

    def __init__(
        self, command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, env=env, text=True
        )
        atexit.register(self._process.communicate)

    def ask(self, value: object) -> Any:
        """Its answer. Fails if it ends instead; what it says then is among the errors of this process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            timer = Timer(PATIENCE_S, self._process.kill)
            timer.start()
            print(json.dumps(value), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
            timer.cancel()
        assert line, f"{self._process.args!r} ended"
        return json.loads(line)
