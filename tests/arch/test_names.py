"""A name stands for one thing: classes are named once, and files of one name hold one idea."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

from support.source_tree import Module, modules

# A file name that stands in several folders, and the idea that the files share.
SHARED = {
    "command": "the command line of one command",
    "errors": "the tree of errors",
    "exported": "graphs that were exported elsewhere: found, and read",
    "engine": "an engine that needs several modules",
    "options": "options of command lines",
    "progress": "progress on a terminal",
    "run": "the run of one command",
    "scheduler": "what chooses which of the waiting work comes next",
    "stages": "the stages after the encoder: described, and built",
}


def class_names(tree: Iterable[Module]) -> Mapping[str, list[str]]:
    """The modules in which a class of each name is defined."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in tree:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.name)
    return found


def file_names(tree: Iterable[Module]) -> Mapping[str, list[str]]:
    """The modules of each file name; packages are named by their folder alone."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in tree:
        if not module.is_package and not module.name.endswith("__main__"):
            found[module.name.rpartition(".")[2]].append(module.name)
    return found


def repeated(names: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in names.items() if len(places) > 1}


def test_no_class_name_stands_twice() -> None:
    assert repeated(class_names(modules())) == {}


def test_a_class_name_that_stands_twice_is_found() -> None:
    planted = [Module.parse("vecmill.a", "class Queue: ..."), Module.parse("vecmill.b", "class Queue: ...")]
    assert repeated(class_names(planted)) == {"Queue": ["vecmill.a", "vecmill.b"]}


def test_a_file_name_that_stands_twice_stands_for_one_idea() -> None:
    assert {name for name in repeated(file_names(modules())) if name not in SHARED} == set()


def test_every_shared_idea_is_still_shared() -> None:
    assert set(SHARED) - set(repeated(file_names(modules()))) == set()


def test_a_file_name_that_stands_twice_is_found() -> None:
    planted = [Module.parse("vecmill.a.calls", ""), Module.parse("vecmill_server.calls", "")]
    assert repeated(file_names(planted)) == {"calls": ["vecmill.a.calls", "vecmill_server.calls"]}
