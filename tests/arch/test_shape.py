"""How the sources are cut: budgets, names, and what every public thing says about itself."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from support.source_tree import Module, modules

MAX_MODULE_LINES = 400
# Those that are still longer, by their room. Nothing is added here.
LONG_MODULES: Mapping[str, frozenset[str]] = {
    "vecmill_server.http1": frozenset({"vecmill_server.http1.protocol"}),
}
MAX_FUNCTION_LINES = 60
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "manager", "misc", "common", "core", "stuff"}


def long_modules(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > MAX_MODULE_LINES:
        yield f"{module.name} has {lines} lines, at most {MAX_MODULE_LINES}"


def long_functions(module: Module) -> Iterator[str]:
    for function in module.functions:
        lines = (function.end_lineno or 0) - function.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield f"{module.name}.{function.name} has {lines} lines, at most {MAX_FUNCTION_LINES}"


def vague_names(module: Module) -> Iterator[str]:
    last = module.name.rpartition(".")[2]
    if last in VAGUE_NAMES:
        yield f"{module.name}: `{last}` says nothing"


def unsorted_exports(module: Module) -> Iterator[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            if ast.unparse(node.value).startswith("sorted("):
                continue
            names = ast.literal_eval(node.value)
            if list(names) != sorted(set(names)):
                yield f"{module.name}.__all__ is not sorted"


def undocumented(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.name} does not say what it is"
    for node in module.tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"{module.name}.{node.name} has no docstring"


# These hand on whether the person trusts the model.
ASKED_FOR_TRUST = (
    "vecmill.engines.torch.transformers_model",
    "vecmill.verification.reference",
)


def remote_code(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
            is_asked = module.name in ASKED_FOR_TRUST and ast.unparse(node.value) == "description.runs_code"
            if not is_asked and not (isinstance(node.value, ast.Constant) and node.value.value is False):
                yield f"{module.name}:{node.value.lineno} may run code that came with a model"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("eval", "exec", "torch.load"):
            yield f"{module.name}:{node.lineno} runs what it reads"


# They read what this program or a library has written for them, or decode a request with limits of their own.
OWN_JSON = frozenset(
    {
        "vecmill.commands.optimize.bench",
        "vecmill.commands.optimize.plan_quality",
        "vecmill.commands.optimize.worker",
        "vecmill.engines.session_calls",
        "vecmill.engines.torch.compiled",
        "vecmill.pictures.decoder_frames",
        "vecmill.tokenization.boundaries",
        "vecmill.tokenization.building.charsmaps",
        "vecmill.tokenization.building.growth",
        "vecmill.tokenization.building.token_changes",
        "vecmill.values.json_text",
        "vecmill.verification.self_check",
        "vecmill_ray.bulk.blocks",
        "vecmill_ray.bulk.cluster",
        "vecmill_server.app.routes.alerts",
        "vecmill_server.base.half_characters",
        "vecmill_server.base.json_io",
        "vecmill_server.bench.generator",
    }
)


def direct_json(module: Module) -> Iterator[str]:
    """Readers of JSON that do not use `decode_json`, whose error tells of all that cannot be decoded."""
    if module.name in OWN_JSON:
        return
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and ast.unparse(node) in (
            "json.loads",
            "json.load",
            "orjson.loads",
        ):
            yield f"{module.name}:{node.lineno} reads JSON without decode_json"


PLANTED: dict[Callable[[Module], Iterator[str]], tuple[str, str]] = {
    long_modules: ("vecmill.vectors", "x = 1\n" * (MAX_MODULE_LINES + 1)),
    long_functions: ("vecmill.vectors", "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
    vague_names: ("vecmill.utils", ""),
    unsorted_exports: ("vecmill", "__all__ = ['b', 'a']"),
    undocumented: ("vecmill.vectors", "'''Embeddings.'''\ndef check(): ..."),
    remote_code: ("vecmill.models", "load(path, trust_remote_code=True)"),
    direct_json: ("vecmill.models", "read(json.loads, path)"),
}


@pytest.mark.promise("no-foreign-code")
@pytest.mark.parametrize("find", PLANTED, ids=lambda find: find.__name__)
def test_sources_have_no(find: Callable[[Module], Iterator[str]]) -> None:
    judged = modules()
    if find is long_modules:
        left = {name for names in LONG_MODULES.values() for name in names}
        judged = tuple(module for module in judged if module.name not in left)
    assert [offence for module in judged for offence in find(module)] == []


@pytest.mark.parametrize("find", PLANTED, ids=lambda find: find.__name__)
def test_planted_offence_is_found(find: Callable[[Module], Iterator[str]]) -> None:
    name, text = PLANTED[find]
    assert list(find(Module.parse(name, text)))


def test_the_modules_that_may_be_longer_are() -> None:
    listed = {name for names in LONG_MODULES.values() for name in names}
    assert listed == {module.name for module in modules() if list(long_modules(module))}


def test_the_modules_that_read_json_of_their_own_do() -> None:
    reading = {module.name for module in modules() if re.search(r"\b(or)?json\.loads\b", module.text)}
    assert reading == OWN_JSON


def test_there_are_sources_to_judge() -> None:
    names = {module.name for module in modules()}
    assert {"vecmill", "vecmill.values.batch", "vecmill_server"} <= names
