"""Whether the suite finds defects that were planted on purpose, at least one in each room: `make defects`.

A suite that was made faster or shorter must still find what it found. Each defect of `planted_defects.json`
is a change of a line or two, such as a developer makes by mistake. It is planted in a copy of the checkout,
and the tests of its room are run there until one fails. A defect that no test finds fails the command.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.source_tree import ROOT

TABLE = Path(__file__).with_name("planted_defects.json")
LINKED = (".venv", "tests/clients/npm/node_modules")
LEFT_OUT = (".git", "build", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache")
SOURCES = ("libs/vecmill/src", "services/vecmill_server/src")
NOTHING_RAN = 5


@dataclass(frozen=True, slots=True)
class Edit:
    """What stands in a file, once, and what the defect makes of it."""

    file: str
    before: str
    after: str

    def apply(self, root: Path) -> None:
        """Plant the defect. Raises `LookupError` if the file does not have the text once."""
        path = root / self.file
        text = path.read_text("utf-8") if path.exists() else ""
        if text.count(self.before) != 1:
            raise LookupError(f"{self.file} does not have this text once:\n{self.before}")
        path.write_text(text.replace(self.before, self.after), "utf-8")


@dataclass(frozen=True, slots=True)
class Defect:
    """A planted defect, and the tests that are asked: by `keyword` first, then all of `tests`."""

    name: str
    defect: str
    tests: tuple[str, ...]
    keyword: str
    edits: tuple[Edit, ...]


def read_defects(path: Path = TABLE) -> list[Defect]:
    """All defects of the table."""
    return [
        Defect(
            found["name"],
            found["defect"],
            tuple(found["tests"]),
            found["keyword"],
            tuple(Edit(**edit) for edit in found["edits"]),
        )
        for found in json.loads(path.read_text("utf-8"))
    ]


def find_defect(root: Path, defect: Defect) -> str | None:
    """Return the first test that fails with the defect in the checkout at `root`, which is restored."""
    kept = {edit.file: (root / edit.file).read_text("utf-8") for edit in defect.edits}
    try:
        for edit in defect.edits:
            edit.apply(root)
        tests = [path for path in defect.tests if (root / path).exists()]
        return _first_failure(root, [*tests, "-k", defect.keyword]) or _first_failure(root, tests)
    finally:
        for file, text in kept.items():
            (root / file).write_text(text, "utf-8")


def _first_failure(root: Path, arguments: Sequence[str]) -> str | None:
    path = os.pathsep.join(str(root / source) for source in SOURCES)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    run = subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    if run.returncode in (0, NOTHING_RAN):
        return None
    lines = run.stdout.splitlines()
    return next((line for line in lines if line.startswith(("FAILED", "ERROR", "SUBFAILED"))), lines[-1])


def copy_checkout(folder: Path) -> Path:
    """Copy the files of the checkout into `folder`; environments are linked."""
    copy = folder / "checkout"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for name in LINKED:
        (copy / name).symlink_to(ROOT / name)
    return copy


def main(names: Sequence[str]) -> int:
    """Plant the defects of these names, or all, and print which test finds each."""
    defects = [defect for defect in read_defects() if not names or defect.name in names]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_checkout(Path(folder))
        for number, defect in enumerate(defects, 1):
            found = find_defect(copy, defect)
            missed += found is None
            print(
                f"{number}/{len(defects)} {defect.name}: {defect.defect}\n    {found or 'MISSED'}", flush=True
            )
    print(f"{len(defects) - missed} of {len(defects)} defects were found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
