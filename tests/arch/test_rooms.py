"""The rooms of each package, from top to bottom: every import goes down, and no modules import in a circle.

A room is a folder of the package, or a module at its root.
"""

import ast
import sys
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import pytest

from pages.module_map import MAP
from support.source_tree import PACKAGES, Module, modules

LIBRARY = (
    "__main__",
    "commands",
    "stores",
    "evaluation",
    "bulk",
    "sync",
    "mill",
    "model_load",
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
    "pictures",
    "hardware",
    "config",
    "requests",
    "results",
    "values",
    "errors",
)
SERVER = (
    "cli",
    "process",
    "app",
    "service",
    "batches",
    "dialects",
    "http1",
    "telemetry",
    "catalog",
    "base",
)
# Tools beside the server. They import the library and these of its modules, and nothing imports them.
BESIDE_SERVER = ("bench", "deploy")
KNOWN_TO_TOOLS = ("vecmill_server.base", "vecmill_server.catalog.model_choice")
ROOMS: Mapping[str, Sequence[str]] = {"vecmill": LIBRARY, "vecmill_server": SERVER}

# What connections know besides the standard library: a server, a parser, and how to refuse.
KNOWN_TO_CONNECTIONS = (
    "httptools",
    "uvicorn",
    "vecmill.errors",
    "vecmill.values.interruptions",
    "vecmill_server.base.errors",
    "vecmill_server.http1",
)

# What the lowest room of the server knows of the library: no model, and nothing that computes.
KNOWN_TO_BASE = ("vecmill.config", "vecmill.errors", "vecmill.hardware", "vecmill.values")

DIALECTS = "vecmill_server.dialects"
DIALECT_ROUTES = f"{DIALECTS}.dialect_routes"

# What Ray's package knows of the server.
KNOWN_TO_RAY = (
    "vecmill_server.app.browser_page",
    "vecmill_server.app.create_app",
    "vecmill_server.app.describe_routes",
    "vecmill_server.app.request_options",
    "vecmill_server.app.request_record",
    "vecmill_server.app.routes.alerts",
    "vecmill_server.app.routes.batches",
    "vecmill_server.app.routes.docs",
    "vecmill_server.app.routes.endpoint",
    "vecmill_server.app.routes.health",
    "vecmill_server.app.routes.models",
    "vecmill_server.app.routes.other_servers",
    "vecmill_server.app.routes.pinecone_models",
    "vecmill_server.app.routes.prometheus",
    "vecmill_server.base.config_file",
    "vecmill_server.base.errors",
    "vecmill_server.base.headers",
    "vecmill_server.base.json_io",
    "vecmill_server.base.options",
    "vecmill_server.base.ray_refusals",
    "vecmill_server.base.settings",
    "vecmill_server.base.time_limit",
    "vecmill_server.base.web_origins",
    "vecmill_server.catalog.catalog",
    "vecmill_server.catalog.model_choice",
    "vecmill_server.catalog.model_names",
    "vecmill_server.cli.served_models",
    "vecmill_server.dialects.dialect",
    "vecmill_server.dialects.dialect_routes",
    "vecmill_server.dialects.fields",
    "vecmill_server.process.loading",
    "vecmill_server.service.bodies",
    "vecmill_server.service.service",
    "vecmill_server.telemetry.logs",
    "vecmill_server.telemetry.metrics.server_metrics",
)


def room_of(name: str) -> str | None:
    """The room of `vecmill.a.b`; `None` for a package itself, the face of all, and for other packages."""
    package, _, rest = name.partition(".")
    return rest.partition(".")[0] if package in ROOMS and rest else None


def level_of(name: str) -> int | None:
    """How high the room of a module is: 0 for the lowest; `None` if it is none of the rooms."""
    rooms, room = ROOMS[name.partition(".")[0]], room_of(name)
    return len(rooms) - 1 - rooms.index(room) if room in rooms else None


def package_of(module: Module) -> str:
    """The package of a module."""
    return module.name.partition(".")[0]


def offences(tree: Iterable[Module]) -> list[str]:
    """Imports from a room to one above it, or to the package's face."""
    return [
        f"{module.name}:{imported.line} imports {imported.name}"
        for module in tree
        if level_of(module.name) is not None
        for imported in module.imports
        if imported.reaches(package_of(module)) and _goes_up(module.name, imported.name)
    ]


def _goes_up(importer: str, imported: str) -> bool:
    target, own = level_of(imported), level_of(importer)
    if target is None:
        # `from vecmill import Mill` asks the face, whose names are no rooms.
        return imported.rpartition(".")[2] != "__version__"
    return own is not None and target > own


def offences_beside(tree: Iterable[Module]) -> list[str]:
    """Imports of the server to its tools, and of the tools to more than `KNOWN_TO_TOOLS`."""
    found = []
    for module in tree:
        room = room_of(module.name)
        for imported in module.imports:
            if not imported.reaches("vecmill_server"):
                continue
            target = room_of(imported.name)
            is_known = target == room or any(imported.reaches(place) for place in KNOWN_TO_TOOLS)
            if not is_known if room in BESIDE_SERVER else target in BESIDE_SERVER:
                found.append(f"{module.name}:{imported.line} imports {imported.name}")
    return found


def imports_beyond(
    tree: Iterable[Module], known: Sequence[str], package: str = "vecmill_server"
) -> list[str]:
    """Imports of modules of a package that are not inside one of `known`."""
    return [
        f"{module.name}:{imported.line} imports {imported.name}"
        for module in tree
        for imported in module.imports
        if imported.reaches(package) and not any(imported.reaches(place) for place in known)
    ]


def foreign_imports(tree: Iterable[Module], known: Sequence[str]) -> list[str]:
    """Imports that are neither of the standard library nor inside one of `known`."""
    return [
        f"{module.name}:{imported.line} imports {imported.name}"
        for module in tree
        for imported in module.imports
        if imported.name.partition(".")[0] not in sys.stdlib_module_names
        and not any(imported.reaches(place) for place in known)
    ]


def offences_of_dialects(tree: Iterable[Module]) -> list[str]:
    """Imports of a dialect, which is a module with `ROUTES`, inside the room but for the list of them."""
    room = [module for module in tree if module.within(DIALECTS) and module.name != DIALECT_ROUTES]
    dialects = {module.name for module in room if _has_routes(module)}
    return [
        f"{module.name}:{imported.line} imports {imported.name}"
        for module in room
        for imported in module.imports
        if any(imported.reaches(dialect) for dialect in dialects - {module.name})
    ]


def _has_routes(module: Module) -> bool:
    assigned = [node for node in module.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [node.targets[0] if isinstance(node, ast.Assign) else node.target for node in assigned]
    return any(isinstance(target, ast.Name) and target.id == "ROUTES" for target in targets)


def circle(tree: Iterable[Module]) -> list[str]:
    """The modules of one circle of imports, or nothing."""
    tree = list(tree)
    names = {module.name for module in tree}
    graph = {module.name: {_module_of(each.name, names) for each in module.imports} for module in tree}
    for name, targets in graph.items():
        targets -= {name, None}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _module_of(imported: str, names: set[str]) -> str | None:
    """The module that holds an imported name: itself a module, or a name in one."""
    parent = imported.rpartition(".")[0]
    return imported if imported in names else parent if parent in names else None


def modules_of(package: str) -> list[Module]:
    """The modules of a package."""
    return [module for module in modules() if package_of(module) == package]


@pytest.mark.parametrize("package", ROOMS)
def test_no_import_goes_up(package: str) -> None:
    assert offences(modules_of(package)) == []


@pytest.mark.parametrize("package", ["vecmill", "vecmill_server", "vecmill_ray"])
def test_no_modules_import_in_a_circle(package: str) -> None:
    assert circle(modules_of(package)) == []


def test_the_tools_stand_beside_the_server() -> None:
    assert offences_beside(modules_of("vecmill_server")) == []


def test_dialects_share_parts_and_do_not_know_each_other() -> None:
    assert offences_of_dialects(modules()) == []
    room = {module.name: module for module in modules() if module.within(DIALECTS)}
    listed = {each.name for each in room.pop(DIALECT_ROUTES).imports}
    assert {name for name, module in room.items() if _has_routes(module)} <= listed


def test_the_lowest_room_of_the_server_knows_no_model() -> None:
    base = [module for module in modules() if module.within("vecmill_server.base")]
    assert imports_beyond(base, KNOWN_TO_BASE, "vecmill") == []


def test_connections_know_nothing_of_the_server() -> None:
    connections = [module for module in modules() if module.within("vecmill_server.http1")]
    assert foreign_imports(connections, KNOWN_TO_CONNECTIONS) == []


def test_ray_knows_the_modules_that_are_named_here() -> None:
    assert imports_beyond(modules_of("vecmill_ray"), KNOWN_TO_RAY) == []
    imported = [each for module in modules_of("vecmill_ray") for each in module.imports]
    assert [known for known in KNOWN_TO_RAY if not any(each.reaches(known) for each in imported)] == []


@pytest.mark.parametrize("package", ROOMS)
def test_the_rooms_are_those_that_there_are(package: str) -> None:
    beside = BESIDE_SERVER if package == "vecmill_server" else ()
    rooms = {room_of(module.name) for module in modules_of(package)} - {None}
    assert rooms == {*ROOMS[package], *beside}
    assert package != "vecmill_server" or len(rooms) <= 12


@pytest.mark.parametrize("package", ROOMS)
def test_the_map_names_every_room(package: str) -> None:
    beside = BESIDE_SERVER if package == "vecmill_server" else ()
    rooms = [room for room in (*ROOMS[package], *beside) if room != "__main__"]
    folders = {room for room in rooms if (PACKAGES[package] / room).is_dir()}
    named = [f"`{package}/{room}{'/' if room in folders else '.py'}`" for room in rooms]
    assert [room for room in named if room not in MAP.read_text("utf-8")] == []


@pytest.mark.parametrize(
    ("package", "above"),
    [(package, above) for package, rooms in ROOMS.items() for above in range(len(rooms) - 1)],
)
def test_an_import_that_goes_up_is_found(package: str, above: int) -> None:
    upper, lower = ROOMS[package][above], ROOMS[package][above + 1]
    planted = Module.parse(f"{package}.{lower}.planted", f"def f():\n    from {package}.{upper} import x")
    assert offences([planted]) == [f"{package}.{lower}.planted:2 imports {package}.{upper}.x"]
    assert offences([Module.parse(f"{package}.{upper}.planted", f"import {package}.{lower}")]) == []


@pytest.mark.parametrize("text", ["import vecmill", "from vecmill import Mill", "from vecmill import gone"])
def test_an_import_of_the_face_is_found(text: str) -> None:
    assert offences([Module.parse("vecmill.engines.planted", text)])


@pytest.mark.parametrize(
    ("room", "imported", "is_found"),
    [
        ("cli", "bench", True),
        ("deploy", "service", True),
        ("deploy", "bench", True),
        ("deploy", "base", False),
        ("deploy", "catalog", True),
        ("deploy", "catalog.model_choice", False),
    ],
)
def test_an_import_of_a_tool_is_found(room: str, imported: str, is_found: bool) -> None:
    planted = Module.parse(f"vecmill_server.{room}.planted", f"import vecmill_server.{imported}.x")
    assert bool(offences_beside([planted])) == is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("from vecmill_server.dialects.first import Body\nROUTES = ()", True),
        ("from vecmill_server.dialects import first\nROUTES = ()", True),
        ("def f():\n    import vecmill_server.dialects.first", True),
        ("from vecmill_server.dialects.shared import Body\nROUTES = ()", False),
    ],
)
def test_an_import_of_a_dialect_is_found(text: str, is_found: bool) -> None:
    tree = [
        Module.parse(
            f"{DIALECTS}.first", "from vecmill_server.dialects.shared import Body\nROUTES = (Body,)"
        ),
        Module.parse(f"{DIALECTS}.shared", "class Body: ..."),
        Module.parse(f"{DIALECTS}.planted", text),
        Module.parse(DIALECT_ROUTES, "from vecmill_server.dialects import first\nROUTES = first.ROUTES"),
    ]
    assert bool(offences_of_dialects(tree)) == is_found


@pytest.mark.parametrize("text", ["from vecmill.mill import Mill", "import vecmill", "import vecmill.models"])
def test_an_import_that_knows_models_is_found(text: str) -> None:
    assert imports_beyond([Module.parse("planted", text)], KNOWN_TO_BASE, "vecmill")


def test_an_import_of_an_unknown_module_is_found() -> None:
    planted = Module.parse("planted", "from vecmill_server.process.watchdog import Watchdog")
    assert imports_beyond([planted], KNOWN_TO_RAY)


@pytest.mark.parametrize(
    "text",
    [
        "from vecmill_server.process.watchdog import Watchdog",
        "import starlette.types",
        "import vecmill.values",
    ],
)
def test_an_import_that_connections_should_not_need_is_found(text: str) -> None:
    assert foreign_imports([Module.parse("planted", text)], KNOWN_TO_CONNECTIONS)


def test_a_circle_of_imports_is_found() -> None:
    texts = {"a": "from vecmill.b import x", "b": "import vecmill.c", "c": "def f():\n    import vecmill.a"}
    assert circle([Module.parse(f"vecmill.{name}", text) for name, text in texts.items()])
    assert not circle([Module.parse("vecmill.a", texts["a"]), Module.parse("vecmill.b", "")])
