"""Writes docs/contributing/promises.md from the table of promises and the marks of the tests.

`make promises` runs this; a test compares the file with what it would write. Tests are read, not imported.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pages.promises import GROUPS, Promise
from support.source_tree import ROOT

PAGE = ROOT / "docs/contributing/promises.md"
TESTS = ROOT / "tests"
MARK = "pytest.mark.promise"

INTRODUCTION = """\
# Promises

Each promise below has a figure and tests. The figures are the bounds of the tests, for two cores without a
GPU. `make test` runs the tests on a small scale. Tests marked *full size* run in `make test-all`.

A test names the promises that it keeps with `@pytest.mark.promise("slug")`. A promise without a test and a
test with an unknown promise fail `make check`.

<!-- This page is written by `make promises` from tests/pages/promises.py and the marks of the tests. -->
"""


@dataclass(frozen=True, slots=True)
class KeptBy:
    """One test that names promises: its path in the repository, its name and its sizes."""

    path: str
    name: str
    slugs: tuple[str, ...]
    is_small: bool = True
    is_full: bool = False


@cache
def find_marked() -> tuple[KeptBy, ...]:
    """Return all tests that name promises, by path and place."""
    return tuple(
        marked
        for path in sorted(TESTS.rglob("test_*.py"))
        for marked in read_marks(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    )


def read_marks(path: str, text: str) -> Iterator[KeptBy]:
    """Read the tests in one file that name promises."""
    if MARK not in text:
        return
    tree = ast.parse(text)
    shared = [mark for node in tree.body for mark in _module_marks(node)]
    shared_slugs, shared_full = _slugs(shared), _is_full(shared)
    constants = {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    tests = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    for test in tests:
        slugs = (*shared_slugs, *_slugs(test.decorator_list))
        if slugs:
            whole = shared_full or _is_full(test.decorator_list)
            some = any(_has_full_case(mark, constants) for mark in test.decorator_list)
            yield KeptBy(path, test.name, slugs, is_small=not whole, is_full=whole or some)
    if shared_slugs and not tests:
        name = Path(path).stem
        yield KeptBy(path, name, shared_slugs, is_small=not shared_full, is_full=shared_full)


def _module_marks(node: ast.stmt) -> list[ast.expr]:
    if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != "pytestmark":
        return []
    return node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]


def _slugs(marks: Iterable[ast.expr]) -> tuple[str, ...]:
    return tuple(
        ast.literal_eval(argument)
        for mark in marks
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK
        for argument in mark.args
    )


def _is_full(marks: Iterable[ast.expr]) -> bool:
    return any(ast.unparse(mark) == "pytest.mark.full" for mark in marks)


def _has_full_case(mark: ast.expr, constants: Mapping[str, str]) -> bool:
    """Return whether a parameter is marked, in the decorator or in a constant that the decorator names."""
    names = [node.id for node in ast.walk(mark) if isinstance(node, ast.Name)]
    texts = [ast.unparse(mark), *(constants.get(name, "") for name in names)]
    return isinstance(mark, ast.Call) and any("pytest.mark.full" in text for text in texts)


def written_page() -> str:
    """Return the whole page."""
    marked = find_marked()
    lines = [INTRODUCTION]
    for title, promises in GROUPS.items():
        lines.append(f"## {title}\n")
        for promise in promises:
            lines += _section(promise, [test for test in marked if promise.slug in test.slugs])
    return "\n".join(lines).rstrip() + "\n"


def _section(promise: Promise, tests: list[KeptBy]) -> Iterator[str]:
    yield f"### `{promise.slug}`\n"
    yield f"{promise.sentence}\n"
    yield f"**Figure:** {promise.figure}\n"
    for path in dict.fromkeys(test.path for test in tests):
        names = ", ".join(_name(test) for test in tests if test.path == path)
        yield f"- [`{path}`](../../{path}): {names}"
    yield ""


def _name(test: KeptBy) -> str:
    if not test.is_full:
        return f"`{test.name}`"
    return f"`{test.name}` ({'also ' if test.is_small else ''}*full size*)"


def main() -> None:
    """Write the file."""
    PAGE.write_text(written_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
