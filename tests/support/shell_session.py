"""Runs the code blocks of a document one after another, as a reader does who copies them into a terminal."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.server import free_port, wait_until_ready

WRITTEN_URL = "http://127.0.0.1:7997"
READY_S = 600.0  # of a server that `make serve` installs first

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
# A command with its continued lines. A comment after it is not a part of it.
COMMAND = re.compile(r"^(?!#)(\S(?:.*\\\n)*.*?)(?:  +#.*)?$", flags=re.MULTILINE)
SERVERS = ("vecmill serve", "make serve", "vecmill-server", "uvx vecmill-server")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the number of its first line, its language and its text."""

    line: int
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block."""
        return [found[1] for found in COMMAND.finditer(self.text)]


def read_blocks(document: str) -> list[Block]:
    """Return the blocks of a document, in order."""
    return [
        Block(document.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in BLOCK.finditer(document)
    ]


@dataclass(slots=True)
class ShellSession:
    """A terminal in `folder`, with `environment`, in which at most one server runs.

    Commands that begin with one of `skipped` are not run. The server gets a free port, and the documented
    address is replaced.
    """

    folder: Path
    environment: Mapping[str, str]
    skipped: tuple[str, ...]
    done: list[str] = field(default_factory=list)
    answer: str = ""
    _port: int = 0
    _server: "subprocess.Popen[bytes] | None" = None

    def run(self, block: Block) -> None:
        """Run a block of shell or Python, or compare a block of JSON with the last answer of curl."""
        if block.language == "sh":
            for command in block.commands:
                self._run_command(command)
        elif block.language == "python":
            self._finish(["python", "-W", "error", "-c", block.text.replace(WRITTEN_URL, self._url)])
        elif block.language == "json":
            shown = json.loads(re.sub(r"\[\d+ numbers\]", "[]", block.text))
            assert shape_of(json.loads(self.answer)) == shape_of(shown), self.answer

    def stop_server(self) -> None:
        """Stop the server, if one runs."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGTERM)
            self._server.wait(timeout=30)
        self._server = None

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _run_command(self, command: str) -> None:
        if command.startswith(self.skipped):
            return
        self.done.append(command)
        if command.startswith(SERVERS) and "--help" not in command:
            self._serve(command)
            return
        output = self._finish(["sh", "-c", command.replace(WRITTEN_URL, self._url)])
        if command.startswith("curl"):
            self.answer = output
            assert "error" not in json.loads(output), output

    def _serve(self, command: str) -> None:
        self.stop_server()
        self._port = free_port()
        log = self.folder / "server.log"
        with log.open("wb") as output:
            self._server = subprocess.Popen(
                ["sh", "-c", command],
                env={**self.environment, "VECMILL_PORT": str(self._port)},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # `make` and the server it starts are stopped together
            )
        wait_until_ready(self._url, self._server, log, deadline=time.perf_counter() + READY_S)

    def _finish(self, arguments: list[str]) -> str:
        done = subprocess.run(
            arguments,
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@contextmanager
def shell_session(
    folder: Path, environment: Mapping[str, str], skipped: tuple[str, ...] = ()
) -> Iterator[ShellSession]:
    """Return a session whose server is stopped at the end of the block."""
    session = ShellSession(folder, environment, skipped)
    try:
        yield session
    finally:
        session.stop_server()


def shape_of(value: object) -> object:
    """Return the keys and types of a JSON value. Strings but ids are kept; numbers of lists are left out."""
    if isinstance(value, dict):
        return {key: "an id" if key == "id" else shape_of(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [shape_of(entry) for entry in value if not isinstance(entry, int | float)]
    return value if isinstance(value, str) else type(value).__name__
