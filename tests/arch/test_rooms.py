"""The rooms of the library, from top to bottom: every import goes down.

A room is a folder of the library, or a module at its root.
"""

from collections.abc import Iterable

import pytest

from support.source_tree import Module, modules

ROOMS = (
    "__main__",
    "commands",
    "sync",
    "mill",
    "operations",
    "batching",
    "verification",
    "serving_plan",
    "engines",
    "quantization",
    "directory_layouts",
    "architectures",
    "graphs",
    "tokenization",
    "vectors",
    "models",
    "hardware",
    "config",
    "requests",
    "results",
    "values",
    "errors",
)
LEVELS = {room: len(ROOMS) - place for place, room in enumerate(ROOMS)}


def room_of(name: str) -> str | None:
    """The room of `vecmill.a.b`; `None` for `vecmill` itself, the face of all, and for other packages."""
    package, _, rest = name.partition(".")
    return rest.partition(".")[0] if package == "vecmill" and rest else None


def offences(tree: Iterable[Module]) -> list[str]:
    """Imports from a room to one above it, or to the package's face."""
    found = []
    for module in tree:
        room = room_of(module.name)
        if room is None:
            continue
        for imported in module.imports:
            target = room_of(imported.name)
            # `from vecmill import Mill` asks the face, whose names are no rooms.
            is_of_face = imported.name == "vecmill" or (target is not None and target not in LEVELS)
            if is_of_face or (target is not None and LEVELS[target] > LEVELS[room]):
                found.append(f"{module.name}:{imported.line} imports {imported.name}")
    return found


def library() -> list[Module]:
    return [module for module in modules() if module.within("vecmill")]


def test_no_import_goes_up() -> None:
    assert offences(library()) == []


def test_the_rooms_are_those_that_there_are() -> None:
    rooms = {room_of(module.name) for module in library()} - {None}
    assert rooms == set(ROOMS)


@pytest.mark.parametrize("above", range(len(ROOMS) - 1))
def test_an_import_that_goes_up_is_found(above: int) -> None:
    upper, lower = ROOMS[above], ROOMS[above + 1]
    planted = Module.parse(f"vecmill.{lower}.planted", f"def f():\n    from vecmill.{upper} import x")
    assert offences([planted]) == [f"vecmill.{lower}.planted:2 imports vecmill.{upper}.x"]
    assert offences([Module.parse(f"vecmill.{upper}.planted", f"import vecmill.{lower}")]) == []


@pytest.mark.parametrize("text", ["import vecmill", "from vecmill import Mill", "from vecmill import gone"])
def test_an_import_of_the_face_is_found(text: str) -> None:
    assert offences([Module.parse("vecmill.engines.planted", text)])
