"""The files of this checkout that git keeps, or would keep."""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.source_tree import ROOT


def kept_files() -> list[str]:
    """Return their paths from the root. Skips the test if this is not a checkout of git."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listing.stdout.splitlines() if (ROOT / name).exists()]


def copy_kept_files(folder: Path) -> None:
    """Copy them to `folder`, as a clone has them. Skips the test if this is not a checkout of git."""
    for name in filter(lambda name: (ROOT / name).is_file(), kept_files()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
