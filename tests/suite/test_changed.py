"""`make test-changed` runs the nearest tests of a change, says what it leaves out, and when it runs all."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from suite.changed import (
    KEPT_GRAPH,
    changed_files,
    concerns_everything,
    is_test,
    mirrors,
    report,
    select,
)
from suite.import_graph import ImportGraph, Needs, dotted_name, read_graph
from support.git_files import kept_files
from support.source_tree import ROOT

LIBRARY = "libs/vecmill/src/vecmill"
# A small project: a leaf, what is assembled of it, and tests at several distances.
SOURCES = {
    f"{LIBRARY}/__init__.py": "from vecmill.mill import Mill",
    f"{LIBRARY}/mill.py": "from vecmill.engines import load",
    f"{LIBRARY}/engines/__init__.py": "FAKE = 'vecmill.engines.fake:FakeEngine'\ndef load(): ...",
    f"{LIBRARY}/engines/fake.py": "def hash_row(): ...",
    f"{LIBRARY}/page/__init__.py": "PAGE = 'page.html'",
    f"{LIBRARY}/__main__.py": "from vecmill.commands.main import main",
    f"{LIBRARY}/commands/main.py": "COMMANDS = ('doctor:doctor',)",
    f"{LIBRARY}/commands/doctor.py": "def doctor(): ...",
    "tests/conftest.py": "import pytest\n@pytest.fixture\ndef server(started): ...",
    "tests/support/rows.py": "def rows():\n    from vecmill.engines import fake\n    return fake",
    "tests/engines/test_fake.py": "from vecmill.engines.fake import hash_row",
    "tests/engines/test_rows.py": "from support.rows import rows",
    "tests/commands/test_doctor.py": "import sys\ncommand = [sys.executable, '-m', 'vecmill', 'x']",
    "tests/test_mill.py": "from vecmill import Mill",
    "tests/test_alone.py": "import json",
    "tests/http/test_server.py": "def test_it(server): ...",
    "tests/docs/test_pages.py": "import pathlib",
}


def graph_of(sources: Mapping[str, str], gone: Iterable[str] = ()) -> ImportGraph:
    return ImportGraph({path: Needs.read(text, dotted_name(path)) for path, text in sources.items()}, gone)


def find_tests(changed: Iterable[str], limit_s: float = 100) -> dict[str, int] | None:
    """The chosen tests and their distances."""
    selection = select(tuple(changed), graph_of(SOURCES), lambda _: 1.0, limit_s)
    if selection is None:
        return None
    return {path: int(says.split()[0]) for path, says in selection.chosen.items()}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> ImportGraph:
    """The graph of this checkout."""
    return read_graph(ROOT, kept_files(), tmp_path_factory.mktemp("graph") / KEPT_GRAPH.name)


def test_tests_are_found_through_imports_in_functions_and_names_in_texts() -> None:
    assert find_tests([f"{LIBRARY}/engines/fake.py"]) == {
        "tests/engines/test_fake.py": 1,
        "tests/engines/test_rows.py": 2,
        # The package imports it.
        "tests/commands/test_doctor.py": 4,
        "tests/test_mill.py": 4,
    }


def test_python_runs_the_main_module_of_a_package() -> None:
    needed = {f"{LIBRARY}/__init__.py", f"{LIBRARY}/__main__.py"}
    assert graph_of(SOURCES).needed_by("tests/commands/test_doctor.py") == needed


def test_a_process_that_a_test_starts_is_what_it_needs() -> None:
    assert find_tests([f"{LIBRARY}/commands/doctor.py"]) == {"tests/commands/test_doctor.py": 3}


def test_a_fixture_is_found_by_its_name() -> None:
    graph = graph_of(SOURCES)
    assert graph.needed_by("tests/http/test_server.py") == {"tests/conftest.py"}


def test_a_group_of_entry_points_is_what_its_reader_needs() -> None:
    reader, command = f"{LIBRARY}/commands/main.py", "services/vecmill_server/src/vecmill_server/cli.py"
    needs = {reader: Needs.read("GROUP = 'vecmill.commands'", "vecmill.commands.main"), command: Needs()}
    graph = ImportGraph(needs, plugins={"vecmill.commands": ["vecmill_server.cli"]})
    assert graph.needed_by(reader) == {command}


def test_the_packages_above_a_module_are_not_what_its_user_needs() -> None:
    assert graph_of(SOURCES).needed_by("tests/engines/test_fake.py") == {f"{LIBRARY}/engines/fake.py"}


def test_a_changed_test_runs_whatever_it_takes() -> None:
    assert find_tests(["tests/test_alone.py", f"{LIBRARY}/mill.py"], limit_s=0.5) == {
        "tests/test_alone.py": 0
    }


def test_a_module_that_is_gone_is_found_by_those_who_still_need_it() -> None:
    rest = {path: text for path, text in SOURCES.items() if not path.endswith("fake.py")}
    gone = [f"{LIBRARY}/engines/fake.py", "tests/engines/test_gone.py"]
    selection = select(gone, graph_of(rest, gone), lambda _: 1.0, 100)
    assert selection is not None
    assert "tests/engines/test_rows.py" in selection.chosen
    assert "tests/engines/test_gone.py" not in selection.chosen


@pytest.mark.parametrize(
    "path",
    [
        "Makefile",
        "pyproject.toml",
        "tests/conftest.py",
        "tests/requirements.lock",
        "libs/vecmill/pyproject.toml",
        ".ci/run",
    ],
)
def test_what_may_concern_any_test_runs_all(path: str) -> None:
    assert find_tests([path, "tests/test_alone.py"]) is None


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("docs/models.md", "tests/docs/test_pages.py"),
        ("README.md", "tests/docs/test_pages.py"),
        # Beside a module, which reads it.
        (f"{LIBRARY}/engines/table.json", "tests/test_mill.py"),
        ("tests/engines/recorded/rows.json", "tests/engines/test_rows.py"),
        (f"{LIBRARY}/engines/deep/er/table.json", "tests/test_mill.py"),
    ],
)
def test_files_that_are_no_python_have_readers(path: str, test: str) -> None:
    found = find_tests([path])
    assert found is not None
    assert test in found


def test_nearer_tests_come_first_then_those_of_that_name_then_faster_ones() -> None:
    sources = {
        "libs/vecmill/src/vecmill/batching/lanes.py": "",
        "tests/batching/test_policy.py": "import vecmill.batching.lanes",
        "tests/http/test_a.py": "import vecmill.batching.lanes",
        "tests/http/test_b.py": "import vecmill.batching.lanes",
        "tests/http/test_far.py": "from http.test_a import x",
    }
    seconds = {"tests/batching/test_policy.py": 9.0, "tests/http/test_a.py": 3.0, "tests/http/test_b.py": 2.0}
    changed = ["libs/vecmill/src/vecmill/batching/lanes.py"]
    whole = select(changed, graph_of(sources), lambda path: seconds.get(path, 0.5), 100)
    assert whole is not None
    assert list(whole.chosen) == [
        "tests/batching/test_policy.py",
        "tests/http/test_b.py",
        "tests/http/test_a.py",
        "tests/http/test_far.py",
    ]
    short = select(changed, graph_of(sources), lambda path: seconds.get(path, 0.5), 11.6)
    assert short is not None
    assert list(short.chosen) == [
        "tests/batching/test_policy.py",
        "tests/http/test_b.py",
        "tests/http/test_far.py",
    ]
    assert list(short.left_out) == ["tests/http/test_a.py"]
    said = report(changed, short)
    assert "tests/http/test_b.py: 1 steps away, 2.0 s" in said
    assert "Left out: 1 test files" in said
    assert "Left out" not in report(changed, whole)


def test_names_of_rooms_are_mirrored() -> None:
    changed = ["services/vecmill_server/src/vecmill_server/dialects/cohere.py"]
    assert mirrors("tests/http/test_cohere.py", changed)
    assert mirrors("tests/dialects/test_any.py", changed)
    assert not mirrors("tests/server/test_src.py", changed)


def test_what_was_read_before_is_read_again_only_if_it_changed(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    for name, text in (("one", "import two"), ("two", "")):
        (tmp_path / f"{name}.py").write_text(text)
    first = read_graph(tmp_path, ["one.py", "two.py"], kept)
    assert first.needed_by("one.py") == {"two.py"}
    assert read_graph(tmp_path, ["one.py", "two.py"], kept).needs == first.needs
    (tmp_path / "one.py").write_text("import json, os")
    assert read_graph(tmp_path, ["one.py", "two.py"], kept).needed_by("one.py") == set()
    kept.write_text("not json")
    assert read_graph(tmp_path, ["one.py", "two.py"], kept).needed_by("one.py") == set()


@pytest.mark.full
def test_a_module_of_this_checkout_finds_the_tests_that_start_the_server(checkout: ImportGraph) -> None:
    room = "services/vecmill_server/src/vecmill_server"
    found = checkout.distances([f"{room}/dialects/cohere.py"])
    started = {path for path, needs in checkout.needs.items() if is_test(path) and "server" in needs.asked}
    assert started
    assert started - set(found) == set()


def test_a_module_that_nobody_names_is_loaded_by_those_beside_it() -> None:
    graph = graph_of({**SOURCES, f"{LIBRARY}/engines/slow_target.py": ""})
    selection = select([f"{LIBRARY}/engines/slow_target.py"], graph, lambda _: 1.0, 100)
    assert selection is not None
    assert "tests/engines/test_fake.py" in selection.chosen


@pytest.mark.full
def test_every_module_of_this_checkout_has_tests(checkout: ImportGraph) -> None:
    """A module that no test is found for would be changed untested."""
    modules = [path for path in checkout.needs if path.startswith(("libs/vecmill/src", "services/"))]
    found = {path: select([path], checkout, lambda _: 1.0, 60) for path in modules}
    assert [path for path, selection in found.items() if selection is not None and not selection.chosen] == []


def test_what_differs_from_a_revision_is_listed() -> None:
    kept_files()
    base, changed = changed_files("HEAD")
    assert base == "HEAD"
    assert changed == sorted(set(changed))


def test_locks_of_tests_concern_their_tests_alone() -> None:
    assert concerns_everything("services/vecmill_server/requirements.lock")
    assert not concerns_everything("tests/clients/npm/package-lock.json")
