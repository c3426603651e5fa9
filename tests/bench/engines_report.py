"""What was measured of engines as one table, as a picture, and against what is asked for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.contestants import ORACLE, Entry
from bench.report import Figure, at_least, markdown_table, ratios_of
from vecmill.values.engine_plan import DEFAULT_ENGINE, Precision
from vecmill.verification.comparison import EmbeddingComparison

# Asked of texts a second over those of the default engine in fp32, and of the accuracy.
BF16_RATIO, BF16_COSINE_MIN = 1.6, 0.9995
INT8 = {
    Precision.INT8_FAST: (1.7, 0.997, 0.93),
    Precision.INT8: (1.25, 0.999, 0.97),
}
EAGER, COMPILED = "torch", "torch-compile"
COMPILED_RATIO, COMPILED_SHARE = 1.8, 0.85
# Asked of this checkout beside another one: medians of pairs on a shared machine repeat to about this much.
BEFORE_RATIO = 0.98
# Nearer than this to the reference is drawn as this near: the axis is logarithmic.
NEAREST = 1e-7


@dataclass(frozen=True, slots=True)
class Turn:
    """One round of one contestant: texts a second by one core and by all, and the latency of each shape."""

    narrow: float
    all_cores: float
    latencies_ms: tuple[float, ...]


@dataclass(slots=True)
class Record:
    """All that is known of a contestant. `starts_s` are seconds from nothing to ready."""

    entry: Entry
    starts_s: list[float] = field(default_factory=list)
    memory_mb: float | None = None
    comparison: EmbeddingComparison | None = None
    turns: list[Turn] = field(default_factory=list)
    refusal: str = ""

    def describe_starts(self) -> str:
        return ", ".join(f"{start_s:.1f} s" for start_s in self.starts_s) + " from nothing to ready"


def find(records: Sequence[Record], engine: str, precision: str) -> Record | None:
    """The record of an engine in a precision, if it was measured."""
    alike = (
        record
        for record in records
        if record.turns
        and record.entry.checkout is None
        and (record.entry.engine, record.entry.precision) == (engine, precision)
    )
    return next(alike, None)


def ratios(record: Record, other: Record) -> tuple[float, ...]:
    """How many times as many texts a second as `other`, by all cores, in each round."""
    return ratios_of(*([turn.all_cores for turn in each.turns] for each in (record, other)))


def write_table(records: Sequence[Record], shapes: Sequence[tuple[int, int]], cores: int) -> str:
    """A Markdown table; medians over the rounds."""
    headings = [
        "engine",
        "precision",
        "texts/s, 1 thread",
        f"texts/s, {cores} threads",
        f"times {DEFAULT_ENGINE} fp32",
        *(f"{texts}x{tokens}, ms" for texts, tokens in shapes),
        "cosine, mean",
        "cosine, worst",
        "recall@10",
        "memory, MB",
        "first start, s",
        "second start, s",
    ]
    base = find(records, DEFAULT_ENGINE, Precision.FP32)
    return markdown_table(headings, [list(_cells(record, base, len(headings))) for record in records])


def _cells(record: Record, base: Record | None, width: int) -> Iterator[str]:
    yield from (record.entry.engine, record.entry.precision + (" before" if record.entry.checkout else ""))
    if not record.turns:
        yield f"refused: {record.refusal}"
        yield from [""] * (width - 3)
        return
    yield f"{_median(record, lambda turn: turn.narrow):.0f}"
    yield f"{_median(record, lambda turn: turn.all_cores):.0f}"
    yield "" if base is None else f"{median(ratios(record, base)):.2f}"
    for place in range(len(record.turns[0].latencies_ms)):
        yield f"{_median(record, lambda turn, place=place: turn.latencies_ms[place]):.2f}"  # type: ignore[misc]
    found = record.comparison
    assert found is not None
    yield f"{found.cosine_mean:.5f}"
    yield f"{found.cosine_min:.5f}"
    yield "" if found.recall_at_10 is None else f"{found.recall_at_10:.3f}"
    yield "" if record.memory_mb is None else f"{record.memory_mb:.0f}"
    yield from (f"{start_s:.1f}" for start_s in record.starts_s)


def figures_of(records: Sequence[Record]) -> list[Figure]:
    """What is asked for, as far as the engines that it is asked of were measured."""
    base = find(records, DEFAULT_ENGINE, Precision.FP32)
    earlier = [record for record in records if record.turns and record.entry.checkout]
    figures = [figure for record in earlier for figure in _earlier_figures(records, record)]
    if base is None:
        return figures
    asked = (_bf16_figures, _int8_figures, _compiled_figures)
    return [*(figure for ask in asked for figure in ask(records, base)), *figures]


def _earlier_figures(records: Sequence[Record], earlier: Record) -> Iterator[Figure]:
    """Texts a second and the speed of each shape, by those of another checkout in the same round."""
    now = find(records, earlier.entry.engine, earlier.entry.precision)
    if now is None:
        return
    yield _at_least(f"{now.entry.name} / before, texts/s", ratios(now, earlier), BEFORE_RATIO)
    for place in range(len(now.turns[0].latencies_ms)):
        times = ([turn.latencies_ms[place] for turn in each.turns] for each in (earlier, now))
        yield _at_least(
            f"{now.entry.name} / before, speed of shape {place + 1}", ratios_of(*times), BEFORE_RATIO
        )


def _bf16_figures(records: Sequence[Record], base: Record) -> Iterator[Figure]:
    measured = [
        record
        for record in records
        if record.turns and record.entry.precision == Precision.BF16 and record.entry.checkout is None
    ]
    best = max(measured, key=lambda record: median(ratios(record, base)), default=None)
    for record in measured:
        is_best = record is best
        name = record.entry.name
        yield _at_least(f"{name} / {base.entry.name}", ratios(record, base), BF16_RATIO if is_best else None)
        yield _at_least(f"{name}, cosine, worst", _accuracy(record).cosine_min, BF16_COSINE_MIN)


def _int8_figures(records: Sequence[Record], base: Record) -> Iterator[Figure]:
    for precision, (ratio, cosine_mean, kept) in INT8.items():
        record = find(records, DEFAULT_ENGINE, precision)
        if record is not None:
            name, found = record.entry.name, _accuracy(record)
            yield _at_least(f"{name} / {base.entry.name}", ratios(record, base), ratio)
            yield _at_least(f"{name}, cosine, mean", found.cosine_mean, cosine_mean)
            if found.recall_at_10 is not None:
                yield _at_least(f"{name}, recall@10", found.recall_at_10, kept)


def _compiled_figures(records: Sequence[Record], base: Record) -> Iterator[Figure]:
    compiled = find(records, COMPILED, Precision.FP32)
    if compiled is None:
        return
    for other in (find(records, EAGER, Precision.FP32), find(records, ORACLE, Precision.FP32)):
        if other is not None:
            name = f"{compiled.entry.name} / {other.entry.name}"
            yield _at_least(name, ratios(compiled, other), COMPILED_RATIO)
    yield _at_least(f"{compiled.entry.name} / {base.entry.name}", ratios(compiled, base), COMPILED_SHARE)


def _at_least(name: str, values: float | tuple[float, ...], bound: float | None) -> Figure:
    if isinstance(values, tuple):
        return at_least(name, "ratio", values, bound)
    return at_least(name, "", [values], bound)


def _accuracy(record: Record) -> EmbeddingComparison:
    assert record.comparison is not None
    return record.comparison


def _median(record: Record, value: Callable[[Turn], float]) -> float:
    return median(map(value, record.turns))


def draw_plot(records: Sequence[Record], file: Path) -> None:
    """Texts a second by all cores against the accuracy of the worst text."""
    # Without pyplot there is no state outside of the figure, and no window system is looked for.
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(8.0, 5.0), dpi=120, layout="constrained")
    axes = drawing.add_subplot()
    for record in records:
        if record.turns:
            off = max(1 - _accuracy(record).cosine_min, NEAREST)
            rate = _median(record, lambda turn: turn.all_cores)
            axes.scatter([off], [rate], label=record.entry.name)
            axes.annotate(
                record.entry.name, (off, rate), textcoords="offset points", xytext=(5, 4), fontsize=7
            )
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("1 - cosine of the worst text (to the right: more accurate)")
    axes.set_ylabel("texts a second, all cores")
    axes.grid(visible=True, alpha=0.3)
    drawing.savefig(file)
