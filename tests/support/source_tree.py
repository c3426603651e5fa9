"""The project's own sources as syntax trees, for tests that judge their shape."""

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "vecmill": ROOT / "libs/vecmill/src/vecmill",
    "vecmill_ray": ROOT / "services/vecmill_ray/src/vecmill_ray",
    "vecmill_server": ROOT / "services/vecmill_server/src/vecmill_server",
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module: its dotted name, the line, and whether importing the importer runs it."""

    name: str
    line: int
    at_import: bool

    def reaches(self, package: str) -> bool:
        """Whether this is `package` or something inside it."""
        return self.name == package or self.name.startswith(package + ".")


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, text and syntax tree. What is read from the tree is read once."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, name: str, text: str, path: Path = Path("planted.py")) -> "Module":
        return cls(name, path, text, ast.parse(text))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(_imports(self, self.tree, at_import=True))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def within(self, *places: str) -> bool:
        """Whether this module is one of `places` or inside one."""
        return any(self.name == place or self.name.startswith(place + ".") for place in places)


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the packages."""
    # The trees stay to the end: nothing to look through for garbage, which takes longer than to parse them.
    gc.disable()
    try:
        return tuple(
            Module.parse(_dotted(package, folder, path), path.read_text("utf-8"), path)
            for package, folder in PACKAGES.items()
            for path in sorted(folder.rglob("*.py"))
        )
    finally:
        gc.freeze()
        gc.enable()


def _dotted(package: str, folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join([package, *(part for part in parts if part != "__init__")])


def _imports(module: Module, node: ast.AST, *, at_import: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, at_import) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = _base(module, child)
            # `from a import b` may name a module or a thing in one: `a.b` covers both.
            yield from (Import(f"{base}.{alias.name}", child.lineno, at_import) for alias in child.names)
        elif not isinstance(child, ast.expr):  # no expression holds an import
            runs = at_import and not _is_deferred(child)
            yield from _imports(module, child, at_import=runs)


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    parents = package[: len(package) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def _is_deferred(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
