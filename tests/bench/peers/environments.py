"""The environments of the peers, which `make` installs from the files in `tests/bench/peers/environments`."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.peers.roster import Peer
from support.source_tree import ROOT

INSTALL_TIMEOUT_S = 3600.0
EXCEPTION = re.compile(r"[A-Za-z_.]*(Error|Exception)\b")
VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


class NotInstalled(Exception):
    """The environment of a peer could not be made. Says the last line of the installation's output."""


def install_environment(name: str) -> None:
    """Let `make` install the environment of a peer, unless it is up to date. Raises `NotInstalled`."""
    try:
        done = subprocess.run(
            [os.environ.get("MAKE", "make"), "--no-print-directory", f".venv/peer-{name}/ready"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"the installation took longer than {INSTALL_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise NotInstalled(f"cannot be installed: {find_reason(done.stderr or done.stdout)}")


def find_reason(output: str) -> str:
    """Return the last line of an output that names an exception, else an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and "make: ***" not in line]
    raised = [line for line in lines if EXCEPTION.match(line)]
    errors = [line for line in lines if "error" in line.lower()]
    found = (raised or errors or lines or ["no output"])[-1]
    return found if len(found) <= 200 else f"{found[:200]} ..."


def find_python(peer: Peer) -> Path:
    """Return the Python of the environment of a peer."""
    if peer.environment is None:
        return Path(sys.executable)
    return ROOT / f".venv/peer-{peer.environment}/bin/python"


def read_versions(peer: Peer) -> Mapping[str, str]:
    """Return the versions of the packages that make a peer fast or slow."""
    if not peer.packages:
        return {}
    done = subprocess.run(
        [str(find_python(peer)), "-c", VERSIONS, *peer.packages], capture_output=True, text=True, check=False
    )
    found: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found
