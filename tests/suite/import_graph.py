"""Which files of Python need which: what they import anywhere, name in texts, or start as a process."""

import ast
import json
import re
import tomllib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath

# Folders whose files other files import by the path below them.
SOURCE_ROOTS = ("libs/vecmill/src", "services/vecmill_ray/src", "services/vecmill_server/src", "tests")
# A module in a text, as engines and commands are named before they are loaded: `package.module:object`.
_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(:[A-Za-z_]\w*)?")
# Longer ones are texts to embed, not names of files.
_LONGEST_MENTION = 200


@dataclass(frozen=True, slots=True)
class Needs:
    """What one file says of others.

    `names` are imported, or parts of what is imported. `modules` are named in texts. `asked` are arguments,
    which may be `fixtures` of another file. `texts` may name a file.
    """

    names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    fixtures: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str, module: str) -> "Needs":
        """Parse a file whose dotted name is `module`; a file that is not Python needs nothing."""
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except SyntaxError:
            return cls()
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        texts = {
            node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        names = {name for node in nodes for name in _imported(node, module)}
        modules = {name for node in nodes for name in _started(node)}
        modules |= {name for text in texts for name in _named(text, module)}
        asked = {argument.arg for node in functions for argument in (*node.args.args, *node.args.kwonlyargs)}
        return cls(
            tuple(sorted(names)),
            tuple(sorted(modules)),
            tuple(sorted(asked | {text for text in texts if text.isidentifier()})),
            tuple(sorted(node.name for node in functions if _is_fixture(node))),
            tuple(sorted(text for text in texts if "." in text and len(text) <= _LONGEST_MENTION)),
        )


def _imported(node: ast.AST, module: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = module.split(".")[: -node.level] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _named(text: str, module: str) -> Iterator[str]:
    """The modules that a text may name: with all packages, or beside the one that has the text."""
    found = _MODULE.fullmatch(text)
    if found and "." in text:
        yield found[1]
    elif found and found[2]:
        yield f"{module.rpartition('.')[0]}.{found[1]}"


def _started(node: ast.AST) -> Iterator[str]:
    """The programs of `-m NAME` in a list of arguments."""
    given: list[ast.expr] = []
    if isinstance(node, ast.List | ast.Tuple):
        given = node.elts
    elif isinstance(node, ast.Call):
        given = node.args
    values = [part.value if isinstance(part, ast.Constant) else None for part in given]
    for option, name in pairwise(values):
        if option == "-m" and isinstance(name, str):
            yield f"{name}.__main__"
            yield name


def _is_fixture(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)


def dotted_name(path: str) -> str:
    """The name by which other files import the file at `path`."""
    for root in SOURCE_ROOTS:
        if path.startswith(f"{root}/"):
            parts = PurePosixPath(path.removeprefix(f"{root}/")).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return PurePosixPath(path).with_suffix("").as_posix().replace("/", ".")


class ImportGraph:
    """The files of a checkout, from one to those that need it."""

    def __init__(
        self,
        needs: Mapping[str, Needs],
        gone: Iterable[str] = (),
        plugins: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """`needs` by the path from the root of the checkout; `gone` are files that others may still need.

        `plugins` are the modules of each group of entry points. Who names the group needs them.
        """
        self.needs = dict(needs)
        self._plugins = {group: tuple(modules) for group, modules in (plugins or {}).items()}
        self.gone = frozenset(gone)
        self._paths = {dotted_name(path): path for path in (*self.gone, *needs)}

    @cached_property
    def users(self) -> Mapping[str, frozenset[str]]:
        """The files that need a file, by its path."""
        users: dict[str, set[str]] = defaultdict(set)
        for path in self.needs:
            for needed in self.needed_by(path):
                users[needed].add(path)
        return {path: frozenset(found) for path, found in users.items()}

    def needed_by(self, path: str) -> set[str]:
        """The files that `path` needs itself."""
        needs = self.needs[path]
        found = {self._find(name) for name in needs.names} | set(self._conftests(path, needs.asked))
        plugins = (module for text in needs.texts for module in self._plugins.get(text, ()))
        found |= {self._paths.get(module) for module in (*needs.modules, *plugins)}
        return {other for other in found if other is not None} - {path}

    def distances(self, changed: Iterable[str]) -> dict[str, int]:
        """How many steps each file is away that needs one of `changed`, which are 0 away."""
        found = dict.fromkeys(changed, 0)
        queue = deque(found)
        while queue:
            path = queue.popleft()
            for user in self.users.get(path, ()):
                if user not in found:
                    found[user] = found[path] + 1
                    queue.append(user)
        return found

    def mentioning(self, path: str) -> set[str]:
        """The files that name the file at `path` in a text."""
        name = PurePosixPath(path).name
        # `run` alone is a word, `.ci/run` a file.
        name = name if "." in name else path
        ends = re.compile(rf"(?:^|[/\s]){re.escape(name)}$")
        return {
            other for other, needs in self.needs.items() if any(ends.search(text) for text in needs.texts)
        }

    def _find(self, name: str) -> str | None:
        """The module `name`, or the one that it is a part of. Not the packages above, which all need."""
        while name and name not in self._paths:
            name = name.rpartition(".")[0]
        return self._paths.get(name)

    def _conftests(self, path: str, asked: Iterable[str]) -> Iterator[str]:
        """The files whose fixtures a test asks for by name."""
        names = set(asked)
        for folder in PurePosixPath(path).parents:
            conftest = f"{folder}/conftest.py"
            if conftest in self.needs and names.intersection(self.needs[conftest].fixtures):
                yield conftest


def read_graph(root: Path, paths: Iterable[str], kept: Path) -> ImportGraph:
    """The graph of the Python files at `paths`; the file `kept` has what was read of them before."""
    before = _read_kept(kept)
    now: dict[str, tuple[str, Needs]] = {}
    sources = [path for path in paths if path.endswith(".py")]
    gone = [path for path in sources if not (root / path).is_file()]
    for path in set(sources).difference(gone):
        stamp = _stamp(root / path)
        found = before.get(path)
        if found is None or found[0] != stamp:
            found = stamp, Needs.read((root / path).read_text("utf-8"), dotted_name(path))
        now[path] = found
    kept.parent.mkdir(parents=True, exist_ok=True)
    entries = {path: [stamp, list(astuple(needs))] for path, (stamp, needs) in now.items()}
    kept.write_text(json.dumps({"reader": _stamp(Path(__file__)), "files": entries}), "utf-8")
    projects = [root / path for path in paths if path.endswith("/pyproject.toml")]
    return ImportGraph({path: needs for path, (_, needs) in now.items()}, gone, _read_plugins(projects))


def _read_plugins(projects: Iterable[Path]) -> dict[str, list[str]]:
    """The modules of each group of entry points."""
    found: dict[str, list[str]] = defaultdict(list)
    for project in projects:
        tables = tomllib.loads(project.read_text("utf-8")) if project.is_file() else {}
        for group, entries in tables.get("project", {}).get("entry-points", {}).items():
            found[group] += [target.partition(":")[0] for target in entries.values()]
    return found


def _stamp(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_mtime_ns} {stat.st_size}"


def _read_kept(kept: Path) -> dict[str, tuple[str, Needs]]:
    """What another version of this reader kept is not read."""
    try:
        known = json.loads(kept.read_text("utf-8"))
        if known["reader"] != _stamp(Path(__file__)):
            return {}
        return {
            path: (stamp, Needs(*(tuple(part) for part in parts)))
            for path, (stamp, parts) in known["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}
