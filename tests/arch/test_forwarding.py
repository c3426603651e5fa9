"""No function only forwards: its callers call what it calls."""

import ast
from collections.abc import Iterable, Iterator

import pytest

import vecmill
from support.source_tree import Module, modules

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Files with the methods of another library's files: some that it calls, and some in their place.
FILES = frozenset({"vecmill.models.downloads._HashedFile", "vecmill.models.safetensors_file.SafetensorsFile"})

PLAIN_DECORATORS = frozenset({"classmethod", "property", "staticmethod"})


def called(function: Function) -> ast.Call | None:
    """The call that a function consists of, beside its docstring; `None` if it does anything else."""
    body = function.body
    if len(body) == 2 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return None
    value = body[0].value
    if isinstance(value, ast.Await | ast.YieldFrom):
        value = value.value
    return value if isinstance(value, ast.Call) else None


def root_of(expression: ast.expr) -> str | None:
    """`a` of `a.b.c`; `None` for any other expression."""
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else None


def only_forwards(function: Function) -> bool:
    """Whether a function makes the call that it was given, with another function: the same arguments alone.

    A default is a decision, so a function with one does more.
    """
    call, own = called(function), function.args
    if call is None or own.defaults or any(own.kw_defaults):
        return False
    root = root_of(call.func)
    positional = [each.arg for each in (*own.posonlyargs, *own.args)]
    if root in positional[:1]:
        positional = positional[1:]  # `self`, whose method or part is called
    expected = [*positional, *([f"*{own.vararg.arg}"] if own.vararg else [])]
    named = {each.arg: each.arg for each in own.kwonlyargs} | ({"**": own.kwarg.arg} if own.kwarg else {})
    given = [ast.unparse(each) for each in call.args]
    given_named = {each.arg or "**": ast.unparse(each.value) for each in call.keywords}
    # An argument of any place may be given by its name.
    by_name = {name: name for name in expected[len(given) :]}
    is_same = given == expected[: len(given)] and given_named == named | by_name
    return root is not None and is_same and bool(given or given_named)


class Classes:
    """The classes of all modules by their names, and which of their methods others may expect."""

    def __init__(self, tree: Iterable[Module]) -> None:
        self._bases: dict[str, list[str]] = {}
        self._methods: dict[str, set[str]] = {}
        self.of_protocols: set[str] = set()
        for module in tree:
            for node in module.nodes:
                if isinstance(node, ast.ClassDef):
                    self._add(node)

    def _add(self, node: ast.ClassDef) -> None:
        bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        methods = {each.name for each in node.body if isinstance(each, Function)}
        self._bases.setdefault(node.name, []).extend(bases)
        self._methods.setdefault(node.name, set()).update(methods)
        if "Protocol" in bases:
            self.of_protocols |= methods

    def overrides(self, name: str, method: str) -> bool:
        """Whether a base of the class `name` has the method, or a base is of another package."""
        return any(
            base not in self._bases or method in self._methods[base] or self.overrides(base, method)
            for base in self._bases[name]
            if base not in ("Generic", "object")
        )


def forwarding(module: Module, classes: Classes) -> Iterator[str]:
    """The functions of a module that only forward, and that nothing else asks for."""
    places = [node for node in module.nodes if isinstance(node, ast.ClassDef)]
    owners = {node: place.name for place in places for node in place.body}
    for node in module.functions:
        if not only_forwards(node):
            continue
        if any(ast.unparse(each) not in PLAIN_DECORATORS for each in node.decorator_list):
            continue
        owner = owners.get(node)
        if owner is None:
            if node.name not in vecmill.__all__:
                yield f"{module.name}.{node.name}"
        elif not _is_expected(module, owner, node.name, classes):
            yield f"{module.name}.{owner}.{node.name}"


def _is_expected(module: Module, owner: str, method: str, classes: Classes) -> bool:
    return (
        method.startswith("__")
        or owner in vecmill.__all__
        or f"{module.name}.{owner}" in FILES
        or method in classes.of_protocols
        or classes.overrides(owner, method)
    )


def found_in(tree: Iterable[Module]) -> list[str]:
    """The functions that only forward."""
    tree = list(tree)
    classes = Classes(tree)
    return [name for module in tree for name in forwarding(module, classes)]


def test_no_function_only_forwards() -> None:
    assert list(found_in(modules())) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, y): return g(x, y)",
        "def f(x, *, y): return a.g(x, y=y)",
        "def f(x, y): return g(x, y=y)",
        "async def f(*x, **y):\n    '''Says.'''\n    return await g(*x, **y)",
        "class C:\n    def f(self, x): self._part.g(x)",
        "class C:\n    def f(self): return g(self)",
        "class B:\n    def g(self, x): ...\nclass C(B):\n    def f(self, x): return self.g(x)",
    ],
)
def test_a_function_that_only_forwards_is_found(text: str) -> None:
    assert found_in([Module.parse("planted", text)])


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, y): return g(y, x)",
        "def f(x, y): return g(x)",
        "def f(x): return g(x, 1)",
        "def f(x): return g(x).h()",
        "def f(x, y=1): return g(x, y)",
        "def f(*x): return g(x)",
        "@command\ndef f(x): g(x)",
        "class C:\n    def close(self): self._part.close()",
        "class C:\n    def __call__(self, x): return self._part(x)",
        "class P(Protocol):\n    def f(self, x): ...\nclass C:\n    def f(self, x): return self._part.f(x)",
        "class B:\n    def f(self, x): ...\nclass C(B):\n    def f(self, x): return g(x)",
        "class C(asyncio.Protocol):\n    def data_received(self, data): self._reader.feed(data)",
        "class Mill:\n    def f(self, x): return self._part.f(x)",
    ],
)
def test_a_function_that_decides_something_or_is_expected_is_not_found(text: str) -> None:
    assert found_in([Module.parse("planted", text)]) == []
