"""Jinja's sandbox with limits on time and memory, for the chat templates of models.

Jinja's sandbox protects the process from a template, but neither its time nor its memory: two nested loops
run for hours, and `"a" * 10**9` takes a gigabyte. Here each line that a rendering executes is a step, counted
by Python's trace function of the thread. Operators are checked before they compute: products, powers and sums
of texts have a largest result, and `~` is a sum. Methods and filters that pad or format are limited too.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer

MOST_STEPS = 100_000
# The texts of a request pass through a template, so this is far above the longest of them.
MOST_CHARACTERS = 64 * 2**20
MOST_REPEATED = 2**20  # characters or items of a product
MOST_BITS = 4096  # of a whole number
MOST_ARGUMENT = 1000  # a width or a count

_PADDING = frozenset({"center", "expandtabs", "format", "format_map", "ljust", "rjust", "translate", "zfill"})


class LimitedSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox. Constants are not computed in advance, so a template is compiled in no time."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
        self.filters = {name: _limit(function) for name, function in self.filters.items()}
        self.filters["format"] = _refuse_format
        self.filters["replace"] = _replace

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        template = super()._parse(source, name, filename)
        _JoinBySum().visit(template)
        template.set_environment(self)
        return template

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may read an attribute: not of a text's methods that may enlarge it."""
        is_padding = isinstance(obj, str) and attr in _PADDING
        return not is_padding and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Return nothing, so that `format` of a text is an attribute like others, and not safe."""

    def call(self, context: Context, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """Call a function of a template."""
        text = getattr(function, "__self__", None)
        if type(text) is str and getattr(function, "__name__", "") == "replace":
            return _replace(text, *arguments)
        return super().call(context, function, *arguments, **named)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute an operator. Raises `TemplateError` if its result could be too large."""
        if not _is_small(operator, left, right):
            raise jinja2.TemplateError(f"{operator!r} with such operands is not supported")
        return super().call_binop(context, operator, left, right)


@contextmanager
def limited_steps(most: int = MOST_STEPS) -> Iterator[None]:
    """Raise `TemplateError` in what is called inside the context if it executes more than `most` lines."""
    left = most

    def count(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise jinja2.TemplateError(f"it takes more than {most} steps")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


class _JoinBySum(NodeTransformer):
    """Turns `a ~ b` into a sum of texts, which is checked."""

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:
        self.generic_visit(node)
        first, *others = (
            jinja2.nodes.Filter(part, "string", [], [], None, None, lineno=node.lineno) for part in node.nodes
        )
        joined: jinja2.nodes.Expr = first
        for other in others:
            joined = jinja2.nodes.Add(joined, other, lineno=node.lineno)
        return joined


def _refuse_format(*_arguments: Any) -> str:
    raise jinja2.TemplateError("the filter 'format' is not supported")


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    """Replace parts of a text. Raises `TemplateError` if the result could be too large."""
    whole, part, other = str(text), str(old), str(new)
    if len(whole) + (len(whole) // max(1, len(part)) + 1) * len(other) > MOST_CHARACTERS:
        raise jinja2.TemplateError("'replace' with such texts is not supported")
    return whole.replace(part, other, -1 if count is None else count)


def _is_small(operator: str, left: Any, right: Any) -> bool:
    match operator:
        case "+" if hasattr(left, "__len__") and hasattr(right, "__len__"):
            return len(left) + len(right) <= MOST_CHARACTERS
        case "*":
            return _is_small_product(left, right)
        case "**":
            is_whole = isinstance(left, int) and isinstance(right, int)
            return not is_whole or int(left).bit_length() * max(0, right) <= MOST_BITS
        case "%":
            return not isinstance(left, str | bytes)
    return True


def _is_small_product(left: Any, right: Any) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left.bit_length() + right.bit_length() <= MOST_BITS
    for sequence, count in ((left, right), (right, left)):
        if hasattr(sequence, "__len__") and isinstance(count, int):
            return len(sequence) * count <= MOST_REPEATED
    return True


def _limit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that refuses a whole number above `MOST_ARGUMENT` as an argument."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if any(isinstance(value, int) and value > MOST_ARGUMENT for value in (*arguments, *named.values())):
            raise jinja2.TemplateError(f"a filter has an argument above {MOST_ARGUMENT}")
        return function(*arguments, **named)

    return call
