"""Counts lines of source: not blank, not a comment, not part of a docstring.

`make lines` prints them for each room; `make lines ARGS=DIRECTORY` for another checkout.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

from support.source_tree import PACKAGES, ROOT

# Tokens that put nothing of their own on a line.
_EMPTY = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def count_lines(text: str) -> int:
    """The lines of source in the text of one module."""
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _EMPTY:
            used.update(range(token.start[0], token.end[0] + 1))
    return len(used - _docstring_lines(ast.parse(text)))


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def count_rooms(root: Path) -> Counter[str]:
    """The lines of each folder of the packages, and of each module at their roots."""
    counts: Counter[str] = Counter()
    for package, folder in PACKAGES.items():
        base = root / folder.relative_to(ROOT)
        for path in base.rglob("*.py"):
            room = path.relative_to(base).with_suffix("").parts[0]
            counts[f"{package}.{room}"] += count_lines(path.read_text("utf-8"))
    return counts


def main() -> None:
    """Print the counts of the checkout that is named, or of this one."""
    counts = count_rooms(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    for room, lines in sorted(counts.items()):
        print(f"{lines:7,}  {room}")
    for package in PACKAGES:
        own = sum(lines for room, lines in counts.items() if room.startswith(f"{package}."))
        print(f"{own:7,}  {package}")
    print(f"{counts.total():7,}  in all")


if __name__ == "__main__":
    main()
