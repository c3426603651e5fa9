"""Runs the code blocks of a document one after another, as a reader does who copies them into terminals.

A server gets a terminal of its own. All other commands are typed into a second one, each into a new shell,
and after `make shell` into the shell that this command opens.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.server import free_port, wait_until_ready

WRITTEN_URL = "http://127.0.0.1:7997"
READY_S = 600.0  # of a server that `make serve` installs first
COMMAND_S = 1800.0  # of `make test`, which installs torch first
OPEN_SHELL = "make shell"
# Separates the output of a command in the shell of `make shell` from what comes before and after it.
OUTPUT_MARK = "-- output --"

FENCE = re.compile(r"^ *```", flags=re.MULTILINE)
BLOCK = re.compile(r"^```([^\n`]+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
# A command with its continued lines. A comment after it is not a part of it.
COMMAND = re.compile(r"^(?!#)(\S(?:.*\\\n)*.*?)(?:  +#.*)?$", flags=re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the number of its first line, what stands behind the fence, and its text."""

    line: int
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block."""
        return [found[1] for found in COMMAND.finditer(self.text)]


def read_blocks(document: str) -> list[Block]:
    """Return all blocks of a document, in order. Raises `ValueError` if one cannot be read."""
    blocks = [
        Block(document.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in BLOCK.finditer(document)
    ]
    fences = len(FENCE.findall(document))
    if fences != 2 * len(blocks):
        raise ValueError(f"{fences} lines begin with a fence, but {len(blocks)} blocks were read")
    return blocks


@dataclass(slots=True)
class ShellSession:
    """The terminals of a reader, in `folder` and with `environment`. At most one server runs.

    `not_run` gives the reason for each command, and for the first line of each program, that is not run.
    `replaced` maps commands to those that are run instead. The server gets a free port, and the documented
    address is replaced. `done` lists the commands that were run, and `left_out` what was not.
    """

    folder: Path
    environment: Mapping[str, str]
    not_run: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    answer: str = ""
    _in_make_shell: bool = False
    _port: int = 0
    _server: "subprocess.Popen[bytes] | None" = None

    def run(self, block: Block) -> None:
        """Run a block of shell or Python, or compare a block of JSON with the last answer of curl."""
        first_line = block.text.partition("\n")[0]
        if block.language == "python" and first_line in self.not_run:
            self.left_out.append(first_line)
        elif block.language == "sh":
            for command in block.commands:
                self._run_command(command)
        elif block.language == "python":
            self._run_program(block)
        elif block.language == "json":
            shown = json.loads(re.sub(r"\[(\d+ numbers)\]", r'"\1"', block.text))
            assert shape_of(json.loads(self.answer)) == shape_of(shown), self.answer
        else:
            raise ValueError(f"line {block.line}: blocks of {block.language!r} cannot be run")

    def stop_server(self) -> None:
        """Stop the server, if one runs."""
        if self._server is not None:
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(self._server.pid, signal.SIGTERM)
            self._server.wait(timeout=30)
        self._server = None

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _run_command(self, command: str) -> None:
        if command in self.not_run:
            self.left_out.append(command)
            return
        self.done.append(command)
        if shlex.split(command)[:2] == ["make", "serve"]:
            self._serve(command)
            return
        output = self._type(self.replaced.get(command, command).replace(WRITTEN_URL, self._url))
        if command == OPEN_SHELL:
            self._in_make_shell = True
        if command.startswith("curl"):
            self.answer = output
            assert "error" not in json.loads(output), output

    def _run_program(self, block: Block) -> None:
        program = self.folder.parent / f"block_{block.line}.py"  # not in the clone, whose files tests look at
        program.write_text(block.text.replace(WRITTEN_URL, self._url), "utf-8")
        self.done.append(program.name)
        self._type(f"python -W error {shlex.quote(str(program))}")

    def _serve(self, command: str) -> None:
        self.stop_server()
        self._port = free_port()
        log = self.folder.parent / "server.log"
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

    def _type(self, command: str) -> str:
        """Return the standard output of a command that is typed into a terminal, which has to succeed."""
        typed = (
            f"printf '\\n{OUTPUT_MARK}\\n'\n( {command}\n) </dev/null\nprintf '\\n{OUTPUT_MARK}\\n%s' $?\n"
        )
        done = subprocess.run(
            ["make", "shell"] if self._in_make_shell else ["sh"],
            env=self.environment,
            cwd=self.folder,
            input=typed,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        parts = done.stdout.split(f"\n{OUTPUT_MARK}\n")
        # `make shell` succeeds whatever its shell ended with.
        assert parts[2:] == ["0"], f"{command}\n{done.stdout}\n{done.stderr}"
        return parts[1]


@contextmanager
def shell_session(
    folder: Path,
    environment: Mapping[str, str],
    *,
    not_run: Mapping[str, str],
    replaced: Mapping[str, str] | None = None,
) -> Iterator[ShellSession]:
    """Return a session whose server is stopped at the end of the block."""
    session = ShellSession(folder, environment, not_run, replaced or {})
    try:
        yield session
    finally:
        session.stop_server()


def shape_of(value: object) -> object:
    """Return keys and types of a JSON value. Strings but ids are kept, and lengths of lists of numbers."""
    if isinstance(value, dict):
        return {key: "an id" if key == "id" else shape_of(entry) for key, entry in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(entry, int | float) for entry in value):
            return f"{len(value)} numbers"
        return [shape_of(entry) for entry in value]
    return value if isinstance(value, str) else type(value).__name__
