"""The plots of an evaluation as SVG: nDCG against speed, and recall against bytes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from vecmill.evaluation.quality_rows import QualityRow
from vecmill.evaluation.significance import Estimate

WIDTH, HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 20, 60
_TICKS = 5
# Distinguishable with any kind of colour vision (Okabe and Ito 2008).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a plot, with the interval of its height, the `group` that colours it, and its `name`."""

    x: float
    y: Estimate
    group: str
    name: str


def plot_speed(rows: Sequence[QualityRow]) -> str | None:
    """Return nDCG against texts/s, a colour for each model, `None` if no speed is known."""
    points = [
        Point(row.texts_per_s, row.ndcg, row.retriever.model, row.retriever.describe())
        for row in rows
        if row.texts_per_s is not None
    ]
    return draw_points(points, "texts/s", "nDCG@10") if points else None


def plot_bytes(rows: Sequence[QualityRow], measure: str) -> str:
    """Return a recall against the bytes of a vector, a colour for each model and plan."""
    points = [
        Point(
            row.bytes_per_text,
            row.estimates[measure],
            f"{row.retriever.model}, {row.retriever.plan}",
            row.retriever.describe(),
        )
        for row in rows
    ]
    return draw_points(points, "bytes a text (logarithmic)", measure, is_logarithmic=True)


def draw_points(points: Sequence[Point], x_label: str, y_label: str, *, is_logarithmic: bool = False) -> str:
    """Return an SVG element with points, their intervals as lines, and a legend of the groups."""
    forward = math.log10 if is_logarithmic else float
    along = _Axis.over([forward(max(point.x, 1e-9)) for point in points], _LEFT, WIDTH - _RIGHT)
    up = _Axis.over(
        [bound for point in points for bound in (point.y.low, point.y.high)], HEIGHT - _BOTTOM, _TOP
    )
    groups = list(dict.fromkeys(point.group for point in points))
    height = HEIGHT + 20 * len(groups)
    backward: Callable[[float], float] = (lambda value: 10**value) if is_logarithmic else float
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(y_label)} against {escape(x_label)}</title>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for value in along.ticks():
        x = along.place(value)
        parts.append(_line(x, _TOP, x, HEIGHT - _BOTTOM, "#dddddd"))
        parts.append(_text(x, HEIGHT - _BOTTOM + 18, f"{backward(value):,.4g}", "middle"))
    for value in up.ticks():
        y = up.place(value)
        parts.append(_line(_LEFT, y, WIDTH - _RIGHT, y, "#dddddd"))
        parts.append(_text(_LEFT - 8, y + 4, f"{value:.3f}", "end"))
    parts.append(_text((_LEFT + WIDTH) / 2, HEIGHT - 15, x_label, "middle"))
    parts.append(
        f'<text transform="translate(15 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    for point in points:
        colour = _COLOURS[groups.index(point.group) % len(_COLOURS)]
        x, y = along.place(forward(max(point.x, 1e-9))), up.place(point.y.mean)
        parts.append(_line(x, up.place(point.y.low), x, up.place(point.y.high), colour))
        told = f"{point.name}: {y_label} {point.y.mean:.4f}, {x_label} {point.x:,.4g}"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"><title>{escape(told)}</title></circle>'
        )
    for number, group in enumerate(groups):
        y, colour = HEIGHT + 20 * number, _COLOURS[number % len(_COLOURS)]
        parts.append(f'<circle cx="{_LEFT + 5}" cy="{y}" r="5" fill="{colour}"/>')
        parts.append(_text(_LEFT + 18, y + 4, group, "start"))
    return "\n".join([*parts, "</svg>"])


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis from `low` to `high`, drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> "_Axis":
        """Return an axis with room around some values."""
        low, high = min(values), max(values)
        room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
        return cls(low - room, high + room, start, end)

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return the values that are written beside the axis."""
        return [self.low + (self.high - self.low) * number / _TICKS for number in range(_TICKS + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
