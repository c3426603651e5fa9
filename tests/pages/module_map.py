"""Writes docs/contributing/modules.md, the list of modules, from their docstrings; checks paths of the map.

`make map` writes the list; a test compares the file with what it would write.
"""

import ast
import re
from collections.abc import Iterator

from support.source_tree import PACKAGES, ROOT, Module, modules

MAP = ROOT / "docs/contributing/architecture.md"
CHANGES = ROOT / "docs/contributing/where-to-change.md"
LIST = ROOT / "docs/contributing/modules.md"

TITLES = {
    "vecmill": "The library, below `libs/vecmill/src/`",
    "vecmill_server": "The server, below `services/vecmill_server/src/`",
    "vecmill_ray": "The Ray package, below `services/vecmill_ray/src/`",
}
HEAD = """# Modules

All modules, with the first sentence of each. [architecture.md](architecture.md) is the map.
`make map` writes this page.

"""
# A file or folder between backticks. URLs begin with a slash.
_PATH = re.compile(r"`([\w-][\w.-]*(?:/[\w.-]+)*/?)`")


def first_sentence(module: Module) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(module.tree) or ""
    return " ".join(text.partition("\n\n")[0].split())


def path_of(module: Module) -> str:
    """The path of a module below the sources of its package: `vecmill/mill.py`; of a package, its folder."""
    package = PACKAGES[module.name.partition(".")[0]]
    path = module.path.parent if module.is_package else module.path
    return f"{path.relative_to(package.parent)}{'/' if module.is_package else ''}"


def list_modules() -> Iterator[str]:
    """The lines of the list: a heading for each package, an entry for each module, by folder."""
    for package, title in TITLES.items():
        yield f"## {title}"
        yield ""
        found = [module for module in modules() if module.within(package)]
        for module in sorted(found, key=lambda module: module.name):
            depth = module.name.count(".")
            indent = "  " * max(0, depth - 1)
            yield f"{indent}- `{path_of(module)}`: {first_sentence(module)}"
        yield ""


def written_list() -> str:
    """The whole of docs/contributing/modules.md."""
    return HEAD + "\n".join(list_modules()).rstrip() + "\n"


def wrong_paths(page: str) -> list[str]:
    """The paths on a page that are not whole, or lead nowhere."""
    roots = (ROOT, *(package.parent for package in PACKAGES.values()))
    named = {each for each in _PATH.findall(page) if "/" in each or each.endswith(".py")}
    return sorted(each for each in named if not any((root / each).exists() for root in roots))


def main() -> None:
    """Write the file."""
    LIST.write_text(written_list(), encoding="utf-8")


if __name__ == "__main__":
    main()
