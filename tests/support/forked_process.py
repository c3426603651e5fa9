"""Processes of `vecmill` that start in a tenth of the time: forked from one that has imported the server.

Imports take most of the time in which a server starts. `ForkedProcess` is a `Popen` whose process is forked
from one that has imported the modules, and has no models. Its arguments, variables, files, folder, session
and process group are those of a process that is executed. SIGHUP and SIGINT end it, whatever the tests
ignore. `/proc` has the command line of the process that it was forked from.

Where coverage is measured (`make coverage`, `make test-all`), in benchmarks, on other systems than Linux, and
for other programs, the process is executed.
"""

import functools
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, AnyStr

from vecmill.hardware.system_calls import is_linux

MODULES = (
    "vecmill.commands.main",
    "vecmill_server.cli.serve",
    "vecmill_server.process.runner",
    "uvloop",
    "tokenizers",
)
MOST_BYTES = 1 << 17
MOST_FILES = 64
NUMBER_BYTES = 4
# No process wants files of these numbers, and any process may have them.
FIRST_FREE = 900
ENDING = (signal.SIGINT, signal.SIGHUP)


class ForkedProcess(subprocess.Popen[AnyStr]):
    """A process of a module, such as `vecmill`, or of a script."""

    _statuses: int | None = None

    def _execute_child(self, *given: Any) -> None:
        args, preexec_fn, folder, variables = (given[place] for place in (0, 2, 5, 6))
        passed: Sequence[int] = given[4]
        line = [os.fspath(each) for each in args]
        if preexec_fn is not None or not can_fork(line):
            if preexec_fn is None and signal.SIG_IGN in map(signal.getsignal, ENDING):
                preexec_fn = accept_signals
            super()._execute_child(*given[:2], preexec_fn, *given[3:])  # type: ignore[misc]
            return
        pipes, (is_session, group) = given[10:16], given[21:23]
        standard = {number: pipe for number, pipe in enumerate((pipes[0], pipes[3], pipes[5])) if pipe != -1}
        files: dict[int, int] = {number: number for number in (0, 1, 2, *passed)} | standard
        request = {
            "line": line[1:],
            "folder": os.fspath(folder or Path.cwd()),
            "variables": dict(os.environ if variables is None else variables),
            "is_session": is_session,
            "group": group,
            "numbers": list(files),
        }
        self._statuses, ours = os.pipe()
        channel, _ = start_forks()
        socket.send_fds(channel, [json.dumps(request).encode()], [ours, *files.values()])
        os.close(ours)
        self.pid = int.from_bytes(os.read(self._statuses, NUMBER_BYTES), "little")
        assert self.pid, "no process was forked"
        os.set_blocking(self._statuses, False)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._statuses is None:
            return super()._internal_poll(*given, **named)  # type: ignore[misc,no-any-return]
        with suppress(subprocess.TimeoutExpired):
            self._wait(0.0)  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._statuses is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc,no-any-return]
        os.set_blocking(self._statuses, not wait_flags)
        try:
            status = os.read(self._statuses, NUMBER_BYTES)
        except BlockingIOError:
            return 0, 0
        os.close(self._statuses)
        return self.pid, int.from_bytes(status, "little")


def run_process(
    line: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60.0,
    given: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with `given` as its input. The result has what it wrote."""
    pipe = subprocess.PIPE
    with ForkedProcess[str](
        line, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            out, error = process.communicate(given, timeout=timeout_s)
        finally:
            process.kill()
    return subprocess.CompletedProcess(line, process.returncode, out, error)


def can_fork(line: Sequence[str]) -> bool:
    """Whether a process of this command may be forked."""
    is_measured = "PYTEST_VERSION" not in os.environ or "COVERAGE_PROCESS_CONFIG" in os.environ
    if is_measured or not is_linux():
        return False
    return line[0] == sys.executable and (line[1] == "-m" or line[1].endswith(".py"))


@functools.cache
def start_forks() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that forks others, until this one ends; return the way to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    return ours, process


def main(channel: socket.socket) -> None:
    """Import, and fork a process for each request."""
    for name in MODULES:
        import_module(name)
    gc.freeze()  # else each forked process goes through all that was imported when it ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that keep a process
    while True:
        message, files, _, _ = socket.recv_fds(channel, MOST_BYTES, MOST_FILES)
        if not message:
            return
        if os.fork() == 0:
            channel.close()
            keep(json.loads(message), files)
            return
        for file in files:
            os.close(file)


def keep(request: dict[str, Any], files: list[int]) -> None:
    """Fork the process, and tell how it ends. Only in the forked process this returns, when it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    statuses, *given = files
    pid = os.fork()
    if pid == 0:
        become(request, statuses, given)
        run(request["line"])
        return
    for file in given:
        os.close(file)
    _, status = os.waitpid(pid, 0)
    tell(statuses, status)
    os._exit(0)


def tell(statuses: int, number: int) -> None:
    """Write a number to who started the process, and may have ended."""
    with suppress(OSError):
        os.write(statuses, number.to_bytes(NUMBER_BYTES, "little"))


def become(request: dict[str, Any], statuses: int, given: list[int]) -> None:
    """Take the files, the folder, the variables and the session of the wanted process."""
    moved = [os.dup2(file, FIRST_FREE + place) for place, file in enumerate([statuses, *given])]
    os.closerange(3, FIRST_FREE)
    for file, number in zip(moved[1:], request["numbers"], strict=True):
        os.dup2(file, number)
    os.closerange(FIRST_FREE + 1, FIRST_FREE + len(moved))
    os.chdir(request["folder"])
    if request["is_session"]:
        os.setsid()
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    os.environ.clear()
    os.environ.update(request["variables"])
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    tell(FIRST_FREE, os.getpid())
    os.close(FIRST_FREE)


def accept_signals() -> None:
    """Be ended by signals that the tests ignore, as those in the background of a shell do."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


def run(line: Sequence[str]) -> None:
    """Run a module or a script, as the interpreter does."""
    is_module = line[0] == "-m"
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[0] = os.getcwd() if is_module else str(Path(line[0]).parent)
    sys.path[1:1] = [folder for folder in folders if folder and folder not in sys.path]
    if is_module:
        sys.argv = list(line[1:])
        runpy.run_module(line[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(line)
        runpy.run_path(line[0], run_name="__main__")


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    main(socket.socket(fileno=int(sys.argv[1])))
