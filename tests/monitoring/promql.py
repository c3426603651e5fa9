"""The names and labels in PromQL expressions, checked against the declarations of the server's metrics."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import promql_parser

from pages.metric_topics import LABEL_VALUES, all_definitions, samples_of
from vecmill_server.telemetry.metrics.definitions import Definition

# Labels that Prometheus adds to every series that it scrapes, and a metric of its own with these labels.
TARGET_LABELS = ("job", "instance")
UP = "up"

# Grafana's variables that stand for a duration, which no parser of PromQL reads.
_DURATIONS: Mapping[str, str] = MappingProxyType({"$__rate_interval": "1m", "$__range": "10m"})
_LEGEND_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_PLAIN = re.compile(r"[\w-]+")


def fill_durations(expression: str) -> str:
    """`expression` with durations in place of Grafana's variables for them."""
    for variable, duration in _DURATIONS.items():
        expression = expression.replace(variable, duration)
    return expression


def known_samples() -> dict[str, Definition | None]:
    """The names of all samples, with their declarations; Prometheus' own have none."""
    found: dict[str, Definition | None] = {UP: None}
    for definition in all_definitions():
        found.update(dict.fromkeys(samples_of(definition), definition))
    return found


@dataclass(frozen=True)
class Selector:
    """A metric in an expression, with the labels and values that it is asked for."""

    name: str
    matchers: tuple[tuple[str, str], ...]

    @property
    def definition(self) -> Definition | None:
        return known_samples().get(self.name)

    @property
    def labels(self) -> frozenset[str]:
        """The labels that series of this name have."""
        definition = self.definition
        return frozenset(TARGET_LABELS) | frozenset(samples_of(definition)[self.name] if definition else ())

    def problems(self) -> Iterator[str]:
        """What the server does not expose: the name, a label, or a value of a label."""
        if self.name not in known_samples():
            yield f"there is no metric {self.name}"
            return
        for label, value in self.matchers:
            if label not in self.labels:
                yield f"{self.name} has no label {label}"
            values = LABEL_VALUES.get(self.definition, {}).get(label) if self.definition else None
            asked = value.split("|")
            if values and all(map(_PLAIN.fullmatch, asked)):
                yield from (f"{label} of {self.name} is never {one}" for one in asked if one not in values)


def selectors(expression: str) -> list[Selector]:
    """The metrics in an expression. Raises `ValueError` if it is no PromQL."""
    return list(_selectors(promql_parser.parse(fill_durations(expression))))


# With several processes, every series has it.
PROCESS_LABEL = "process"


def problems(expression: str, legend: str = "") -> list[str]:
    """Names, labels and values in an expression, and labels in its legend, that are not exposed."""
    tree = promql_parser.parse(fill_durations(expression))
    found = [problem for one in _selectors(tree) for problem in one.problems()]
    labels = {label for one in _selectors(tree) for label in one.labels}
    asked = {*_grouping_labels(tree), *_LEGEND_LABEL.findall(legend)} - {PROCESS_LABEL}
    return found + [f"no metric of the expression has the label {label}" for label in sorted(asked - labels)]


def _selectors(node: Any) -> Iterator[Selector]:
    for inner in _walk(node):
        if isinstance(inner, promql_parser.VectorSelector):
            groups = [inner.matchers.matchers, *inner.matchers.or_matchers]
            yield Selector(
                inner.name or "", tuple((one.name, one.value) for group in groups for one in group)
            )


def _grouping_labels(node: Any) -> Iterator[str]:
    for inner in _walk(node):
        if isinstance(inner, promql_parser.AggregateExpr) and inner.modifier is not None:
            yield from inner.modifier.labels
        if isinstance(inner, promql_parser.BinaryExpr) and inner.modifier is not None:
            yield from inner.modifier.group_labels or ()
            if inner.modifier.matching is not None:
                yield from inner.modifier.matching.labels


def _walk(node: Any) -> Iterator[Any]:
    yield node
    match node:
        case promql_parser.BinaryExpr():
            inner = [node.lhs, node.rhs]
        case promql_parser.Call():
            inner = list(node.args)
        case promql_parser.MatrixSelector():
            inner = [node.vector_selector]
        case promql_parser.VectorSelector() | promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            inner = []
        case _:  # aggregations, parentheses, signs, subqueries
            inner = [node.expr]
    for one in inner:
        yield from _walk(one)
