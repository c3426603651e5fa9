"""A process that is forked cannot be told from one that is executed."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.forked_process import ForkedProcess, can_fork

SCRIPT = """
import json, os, signal, sys
import beside
print(json.dumps({
    "argv": sys.argv, "folder": os.getcwd(), "variables": dict(os.environ), "name": __name__,
    "files": sorted(map(int, os.listdir("/proc/self/fd")))[:-1], "session": os.getsid(0) == os.getpid(),
    "hangup": signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, "beside": beside.__file__,
    "read": sys.stdin.read(), "pid": os.getpid(), "group": os.getpgid(0) == os.getpid(),
}))
print("an error", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Nothing is ignored, as `nohup` ignores SIGHUP, which a process that is executed would go on to do."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.linux
@pytest.mark.parametrize("leading", [{"start_new_session": True}, {"process_group": 0}])
def test_a_forked_process_is_as_one_that_is_executed(
    default_signals: None, leading: dict[str, Any], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "beside.py").touch()
    told = []
    with socket.socket() as passed:
        for kind in (ForkedProcess, subprocess.Popen):
            process = kind(
                [sys.executable, script, "--an", "argument"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env={"A": "b", "LC_CTYPE": "C.UTF-8"},
                pass_fds=[passed.fileno()],
                **leading,
            )
            out, error = process.communicate("given", timeout=30)
            told.append(json.loads(out) | {"error": error, "status": process.returncode})
            assert told[-1].pop("pid") == process.pid
    assert told[0] == told[1]
    assert (told[0]["read"], told[0]["status"], told[0]["group"]) == ("given", 7, True)


@pytest.mark.linux
def test_a_forked_process_is_waited_for_and_killed_by_its_number(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import signal; signal.pause()")
    process = ForkedProcess[bytes]([sys.executable, str(script)])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(30) == process.poll() == -signal.SIGKILL


def test_only_processes_of_python_are_forked_and_none_is_whose_coverage_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_CONFIG", "")
    assert not can_fork([sys.executable, "-m", "vecmill"])
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG")
    assert not can_fork(["sh", "-c", "true"])
    assert not can_fork([sys.executable, "-c", "pass"])
