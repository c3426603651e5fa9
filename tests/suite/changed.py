"""`make test-changed`: the tests of what changed, the nearest first, in about a minute.

Changed is what differs from the merge base with the branch main, or from SINCE: commits, edits and new files.
A test file is as far from a change as there are steps of `import_graph` between them. Nearer ones come first,
and among those of one distance the ones named like what changed, then the faster ones, until the time is used
up. What is left out is said: `make test` runs everything.
"""

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from suite.durations import BUDGETS, RECORD, folder_of, read_budgets, read_file_seconds
from suite.import_graph import ImportGraph, read_graph
from support.source_tree import ROOT

KEPT_GRAPH = ROOT / "build/test-imports.json"
# A change of these may concern any test.
OF_EVERY_TEST = {
    "Makefile",
    "pyproject.toml",
    "tests/conftest.py",
    "tests/requirements.lock",
    "tests/torch.txt",
}
LOCKS = {"requirements.lock", "model.lock", "pyproject.toml", "package-lock.json"}
# Folders of the root whose files are no Python, and the tests that read all of them.
READERS = {
    "docs": ("tests/docs/", "tests/arch/"),
    "README.md": ("tests/docs/", "tests/arch/"),
    "CHANGELOG.md": ("tests/docs/", "tests/arch/"),
    "LICENSE": ("tests/arch/",),
    ".gitignore": ("tests/arch/",),
    ".editorconfig": ("tests/arch/",),
    ".pre-commit-config.yaml": ("tests/arch/",),
    "docker": ("tests/deployment/", "tests/images/"),
    ".dockerignore": ("tests/deployment/", "tests/images/"),
}
# For a test file that no recorded run has.
UNKNOWN_SECONDS = 2.0
# Names of folders that say nothing about what is in them.
COMMON_PARTS = {"src", "libs", "services", "tests", "vecmill", "vecmill_server", "vecmill_ray", "__init__"}


@dataclass(frozen=True, slots=True)
class Selection:
    """Test files to run, and those that there was no time for, each with its distance and its seconds."""

    chosen: Mapping[str, str]
    left_out: Mapping[str, str]
    seconds: float
    seconds_left_out: float


def is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return path.startswith("tests/") and name.startswith("test_") and name.endswith(".py")


def concerns_everything(path: str) -> bool:
    """Whether a change of the file may concern any test."""
    return path in OF_EVERY_TEST or (not path.startswith("tests/") and PurePosixPath(path).name in LOCKS)


def readers_of(path: str, graph: ImportGraph) -> set[str] | None:
    """Those that read the file at `path`, which no test is known to import; `None` where none is known."""
    found = graph.mentioning(path)
    top = path.partition("/")[0]
    for readers in READERS.get(top, ()):
        found |= {other for other in graph.needs if other.startswith(readers) and is_test(other)}
    # Data lies beside the modules that read it, as do modules whose names are put together when they are
    # loaded: those of the nearest folder that has any.
    for folder in PurePosixPath(path).parents[:-1]:
        beside = {other for other in graph.needs if PurePosixPath(other).parent == folder} - {path}
        if beside:
            found |= beside
            break
    return found or None


def mirrors(test: str, changed: Iterable[str]) -> bool:
    """Whether a test has the name of a module that changed, or its folder that of the module's room."""
    parts = {part for path in changed for part in PurePosixPath(path).with_suffix("").parts} - COMMON_PARTS
    path = PurePosixPath(test)
    return path.stem.removeprefix("test_") in parts or bool(parts.intersection(path.parent.parts))


def select(
    changed: Collection[str], graph: ImportGraph, seconds_of: Callable[[str], float], limit_s: float
) -> Selection | None:
    """The tests of the files at `changed` that run in `limit_s`; `None` if that is every test."""
    if any(concerns_everything(path) for path in changed):
        return None
    starts: set[str] = set()
    for path in changed:
        readers = {path} if any(map(is_test, graph.distances([path]))) else readers_of(path, graph)
        if readers is None:
            return None
        starts |= readers
    found = graph.distances(starts)
    distances = {path: steps for path, steps in found.items() if is_test(path) and path in graph.needs}
    order = sorted(
        distances, key=lambda path: (distances[path], not mirrors(path, changed), seconds_of(path), path)
    )
    chosen: dict[str, str] = {}
    left_out: dict[str, str] = {}
    used = 0.0
    for path in order:
        says = f"{distances[path]} steps away, {seconds_of(path):.1f} s"
        # What changed itself is run whatever it costs.
        if distances[path] == 0 or used + seconds_of(path) <= limit_s:
            chosen[path] = says
            used += seconds_of(path)
        else:
            left_out[path] = says
    return Selection(chosen, left_out, used, sum(map(seconds_of, left_out)))


def known_seconds(graph: ImportGraph) -> Callable[[str], float]:
    """How long a test file takes: as in the last whole run here, or its part of the budget of its folder."""
    recorded = read_file_seconds(RECORD)
    budgets = read_budgets(BUDGETS)
    counts = Counter(folder_of(path) for path in graph.needs if is_test(path))

    def estimate(path: str) -> float:
        if path in recorded:
            return recorded[path]
        folder = folder_of(path)
        return budgets[folder] / counts[folder] if folder in budgets else UNKNOWN_SECONDS

    return estimate


def changed_files(since: str | None) -> tuple[str, list[str]]:
    """The revision that the checkout is compared with, and what differs from it, as paths from the root."""
    base = since or _git("merge-base", "HEAD", "main").strip() or "HEAD"
    listed = _git("diff", "--name-only", "--no-renames", base)
    new = _git("ls-files", "--others", "--exclude-standard")
    return base, sorted({*listed.splitlines(), *new.splitlines()})


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    # Without a branch main there is no merge base.
    if done.returncode and arguments[0] != "merge-base":
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def report(changed: Sequence[str], selection: Selection) -> str:
    """What is run and why, and what is not."""
    lines = [f"{len(changed)} files changed: {', '.join(changed[:5])}{', ...' if len(changed) > 5 else ''}"]
    lines.append(f"{len(selection.chosen)} test files, about {selection.seconds:.0f} s of tests:")
    lines += [f"  {path}: {says}" for path, says in selection.chosen.items()]
    if selection.left_out:
        lines.append(
            f"Left out: {len(selection.left_out)} test files farther away or slower, about "
            f"{selection.seconds_left_out:.0f} s. `make test` before you commit."
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the tests of what changed.")
    parser.add_argument("--since", help="compare with this revision, not with the merge base with main")
    parser.add_argument("--seconds", type=float, default=60, help="how long the chosen tests may take in all")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    options, others = parser.parse_known_args(arguments)
    base, changed = changed_files(options.since or None)
    if not changed:
        print(f"Nothing differs from {base}.")
        return 0
    paths = _git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    graph = read_graph(ROOT, {*paths, *changed}, KEPT_GRAPH)
    selection = select(changed, graph, known_seconds(graph), options.seconds)
    if selection is None:
        widest = [path for path in changed if concerns_everything(path)]
        print(f"All tests: {', '.join(widest or changed)} may concern any of them.")
    else:
        print(report(changed, selection))
    if options.list or (selection is not None and not selection.chosen):
        return 0
    files = [] if selection is None else list(selection.chosen)
    return subprocess.run([sys.executable, "-m", "pytest", *others, *files], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
