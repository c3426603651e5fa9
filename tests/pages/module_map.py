"""Writes the list of modules in docs/contributing/architecture.md from their docstrings.

`make map` runs this; a test compares the file with what it would write.
"""

import ast
from collections.abc import Iterator

from support.source_tree import ROOT, Module, modules

CHART = ROOT / "docs/contributing/architecture.md"
BEGIN = "<!-- The list below is written by `make map` from the docstrings of the modules. -->\n"

TITLES = {
    "vecmill": "The library, `libs/vecmill`",
    "vecmill_server": "The server, `services/vecmill_server`",
    "vecmill_ray": "The Ray package, `services/vecmill_ray`",
}


def first_sentence(module: Module) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(module.tree) or ""
    return " ".join(text.partition("\n\n")[0].split())


def list_modules() -> Iterator[str]:
    """The lines of the list: a heading for each package, an entry for each module, by folder."""
    for package, title in TITLES.items():
        yield f"## {title}"
        yield ""
        found = [module for module in modules() if module.within(package)]
        for module in sorted(found, key=lambda module: module.name):
            depth = module.name.count(".")
            indent = "  " * max(0, depth - 1)
            yield f"{indent}- `{module.name}`: {first_sentence(module)}"
        yield ""


def written_chart() -> str:
    """The whole of docs/contributing/architecture.md, with the list made anew."""
    head, mark, _ = CHART.read_text("utf-8").partition(BEGIN)
    if not mark:
        raise SystemExit(f"{CHART} has no line {BEGIN!r} above its list of modules.")
    return head + mark + "\n" + "\n".join(list_modules()).rstrip() + "\n"


def main() -> None:
    """Write the file."""
    CHART.write_text(written_chart(), encoding="utf-8")


if __name__ == "__main__":
    main()
