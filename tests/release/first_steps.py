"""What a user does first with the wheels of a release, in an environment that has nothing else."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

TIMEOUT_S = 600.0
FIRST_ANSWER_S = 60.0
DIMENSIONS = 384
# Of this checkout and this terminal, which a user does not have.
LEFT_OUT = ("VECMILL_", "HF_", "MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """Seconds of the installation, and from the start of `vecmill serve` to its first answer.

    The model is prepared in this time: it is the first start in this environment.
    """

    install_s: float
    first_answer_s: float


class Trial:
    """An environment of its own. Raises `ClickException` for a command that fails."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
        links = f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
        programs = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        caches = {"VECMILL_CACHE_DIR": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
        self._settings: Mapping[str, str] = {**kept, "PATH": programs, "PIP_FIND_LINKS": links, **caches}

    def run(self, program: str, *arguments: object) -> str:
        """Return what a program of the environment writes."""
        command = [str(self._folder / "bin" / program), *map(str, arguments)]
        done = subprocess.run(
            command,
            env=self._settings,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise click.ClickException(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def serve(self, port: int) -> Iterator[None]:
        """Run `vecmill serve`."""
        command = [str(self._folder / "bin/vecmill"), "serve", "--port", str(port), "--lame-duck-s", "0"]
        with (self._folder / "serve.log").open("wb") as log:
            process = subprocess.Popen(command, env=self._settings, cwd=self._folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            if process.wait(60):
                text = (self._folder / "serve.log").read_text()
                raise click.ClickException(f"`vecmill serve` ended with {process.returncode}: {text}")


def take_first_steps(python: str, folder: Path, wheels: Path, version: str) -> FirstSteps:
    """Install the wheels by name with `python`, and use every command. Raises `ClickException`."""
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    trial = Trial(folder, wheels)
    began = time.monotonic()
    trial.run("python", "-m", "pip", "install", "--quiet", f"vecmill-server[minilm]=={version}")
    install_s = time.monotonic() - began
    expect(trial.run("vecmill", "--version").split() == ["vecmill", version], "`vecmill --version`")
    port = free_port()
    began = time.monotonic()
    with trial.serve(port):
        answer = ask(f"http://127.0.0.1:{port}/v1/embeddings", began + FIRST_ANSWER_S)
        first_answer_s = time.monotonic() - began
        expect(len(answer["data"][0]["embedding"]) == DIMENSIONS, "the first answer")
        trial.run("vecmill", "bench", "--url", f"http://127.0.0.1:{port}", "--seconds", 1, "--clients", 2)
    (folder / "corpus.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    trial.run("vecmill", "embed", "corpus.jsonl", "--output", "vectors.npy")
    expect((folder / "vectors.npy").stat().st_size > 2 * 4 * DIMENSIONS, "the file of vectors")
    (folder / "vecmill.toml").write_text("[server]\nport = 7997\n")
    for target in ("compose", "helm", "systemd"):
        trial.run("vecmill", "deploy", "render", "--target", target, "--output", target, "vecmill.toml")
    trial.run("python", "-m", "pip", "install", "--quiet", f"vecmill-ray=={version}")
    expect("embed" in trial.run("vecmill", "ray", "--help"), "`vecmill ray`")
    trial.run("vecmill", "deploy", "render", "--target", "ray", "--output", "ray", "vecmill.toml")
    return FirstSteps(install_s, first_answer_s)


def ask(url: str, until: float) -> dict[str, list[dict[str, list[float]]]]:
    """Return the first answer to a text, asked again until the server listens. Raises `ClickException`."""
    body = json.dumps({"input": "hello"}).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                found: dict[str, list[dict[str, list[float]]]] = json.load(response)
                return found
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.02)
    raise click.ClickException(f"{url} gave no answer in time.")


def expect(is_as_expected: bool, what: str) -> None:
    """Raise `ClickException` unless something was as expected."""
    if not is_as_expected:
        raise click.ClickException(f"{what} was not as expected.")


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
