"""The table and the bar chart at the beginning of README.md, from the published results.

make bench-overview

The results are those of one kind of processor in docs/benchmarks, and those of a run of its own beside TEI.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape

from bench.peers.loads import list_loads
from bench.peers.page import count_rounds
from bench.peers.results import Comparison, PeerResult
from bench.peers.roster import Transport
from support.source_tree import ROOT

FOLDER = ROOT / "docs/benchmarks"
RESULTS, RESULTS_OF_TEI = FOLDER / "amd-epyc.json", FOLDER / "tei/amd-zen-4.json"
PAGE, CHART = ROOT / "README.md", FOLDER / "overview.svg"
BEGIN, END = "<!-- overview: written by make bench-overview -->\n", "\n<!-- overview: end -->"

COLUMNS = ("short", "50 words", "mixed", "256 tokens")
CHARTED = "50 words"
ONE_CLIENT = "one client, short"
# The rows of the page in its order, with their names there: all peers, and of vecmill what people run.
SHOWN: Mapping[str, str] = MappingProxyType(
    {
        "vecmill, what optimize chose": "vecmill, tuned",
        "vecmill, onnx fp32": "vecmill, fp32",
        "FastAPI and ONNX Runtime": "FastAPI + ONNX Runtime",
        "infinity, optimum": "Infinity 0.0.78, ONNX",
        "infinity, torch": "Infinity 0.0.78, torch",
        "FastAPI and transformers": "FastAPI + transformers",
        "llama-cpp-python, f32": "llama-cpp-python, f32",
        "sentence-transformers, openvino": "sentence-transformers, OpenVINO",
        "sentence-transformers": "sentence-transformers, torch",
        "sentence-transformers, onnx": "sentence-transformers, ONNX",
        "fastembed": "fastembed",
        "embed-anything": "embed-anything",
        "TEI 1.9.3": "TEI 1.9.3",
    }
)

WIDTH, LABELS, FIGURES = 760, 270, 50
BAR, STEP, GAP, MARGIN = 22, 30, 38, 16
OURS, FAINT, TEXT, PAPER = "#2563eb", "#9ca3af", "#1f2937", "#ffffff"


@dataclass(frozen=True, slots=True)
class Row:
    """One server or library: its figures in one run. `one_client_ms` has two values if it is a range."""

    name: str
    texts_per_s: Mapping[str, float]
    one_client_ms: Sequence[float]
    memory_mb: float | None = None
    ready_s: float | None = None
    cosine: float | None = None

    @property
    def is_ours(self) -> bool:
        """Whether the row is one of vecmill's."""
        return self.name.startswith("vecmill")


@dataclass(frozen=True, slots=True)
class Run:
    """The rows that were measured in turn on one machine, and how: a sentence."""

    title: str
    measured: str
    rows: Sequence[Row] = field(default_factory=tuple)


def read_runs() -> tuple[Run, Run]:
    """Read the run of all peers, and the run beside TEI."""
    found = Comparison.read(RESULTS)
    peers = {peer.name: peer for peer in found.peers}
    rows = [_row_of_peer(peers[name]) for name in SHOWN if name in peers]
    document = json.loads(RESULTS_OF_TEI.read_text("utf-8"))
    others = [_row_of_entry(entry) for entry in document["servers"]]
    return (
        Run(_name_machine(found.machine), _describe_run(found), rows),
        Run(
            f"{_name_machine(document['machine'])}, another run",
            f"TEI's run: {document['finished']}, {document['rounds']} rounds; command and load not kept.",
            others,
        ),
    )


def _describe_run(found: Comparison) -> str:
    settings = found.settings
    return (
        f"Measured {found.finished_at[:10]} by `{settings['command']}`: {count_rounds(found)} of "
        f"{settings['seconds']:g} s for each load, "
        f"{found.machine['memory_gb']} GB of memory, load average {found.machine['load_average']:.2f} before."
    )


def _name_machine(machine: Mapping[str, Any]) -> str:
    return f"{machine['processor']}, {machine['cores']} cores"


def _row_of_peer(peer: PeerResult) -> Row:
    loads = {load.name: median(values) for load in list_loads() if (values := peer.values(load))}
    how = " (in process)" if peer.transport == Transport.IN_PROCESS else ""
    ready_s = peer.ready_s
    return Row(
        f"{SHOWN[peer.name]}{how}",
        loads,
        (loads[ONE_CLIENT],),
        peer.memory_mb,
        ready_s[-1] if ready_s else None,
        peer.cosine_min,
    )


def _row_of_entry(entry: Mapping[str, Any]) -> Row:
    return Row(SHOWN[entry["name"]], entry["texts_per_s"], entry["one_client_short_ms"], entry["memory_mb"])


def write_table(runs: Sequence[Run]) -> str:
    """Return the table of all runs, with a line above the rows of each run."""
    headings = ["", *(f"{name}, texts/s" for name in COLUMNS)]
    headings += ["one client, ms", "memory, MB", "ready after, s", "worst cosine"]
    lines: list[Sequence[str]] = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    for run in runs:
        lines.append([f"***{run.title}***", *[""] * (len(headings) - 1)])
        lines += [_cells(row) for row in run.rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{table}\n\n{' '.join(run.measured for run in runs)}"


def _cells(row: Row) -> list[str]:
    name = f"**{row.name}**" if row.is_ours else row.name
    one_client = " to ".join(f"{value:.1f}" for value in row.one_client_ms)
    others = [
        (row.memory_mb, ".0f"),
        (row.ready_s, ".1f"),
        (row.cosine, ".4f"),
    ]
    rest = ["-" if value is None else format(value, form) for value, form in others]
    return [name, *(_number(row.texts_per_s[column]) for column in COLUMNS), one_client, *rest]


def _number(value: float) -> str:
    return f"{value:.3g}"


def draw_chart(runs: Sequence[Run]) -> str:
    """Return the bar chart as SVG: a bar for each row, the runs one below the other."""
    most = max(row.texts_per_s[CHARTED] for run in runs for row in run.rows)
    scale = (WIDTH - LABELS - FIGURES - 2 * MARGIN) / most
    parts, top = [], MARGIN + GAP
    for run in runs:
        parts.append(_text(MARGIN, top, run.title, weight="bold"))
        top += 12
        for row in run.rows:
            parts += _draw_bar(row, top, scale)
            top += STEP
        top += GAP
    height = top - GAP + MARGIN
    title = "Texts a second, texts of 45 to 55 words, 32 clients (longer is better)"
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="14" role="img" aria-label="{escape(title)}">'
    )
    paper = f'<rect width="{WIDTH}" height="{height}" rx="6" fill="{PAPER}"/>'
    heading = _text(MARGIN, MARGIN + 10, title, size=16, weight="bold")
    return "\n".join([begin, paper, heading, *parts, "</svg>"]) + "\n"


def _draw_bar(row: Row, top: int, scale: float) -> Iterator[str]:
    value = row.texts_per_s[CHARTED]
    length, middle = value * scale, top + BAR - 6
    weight = "bold" if row.is_ours else "normal"
    yield _text(MARGIN, middle, row.name, weight=weight)
    colour = OURS if row.is_ours else FAINT
    yield f'<rect x="{LABELS}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
    yield _text(round(LABELS + length) + 8, middle, _number(value), weight=weight)


def _text(left: int, base: int, words: str, *, size: int = 14, weight: str = "normal") -> str:
    return (
        f'<text x="{left}" y="{base}" font-size="{size}" font-weight="{weight}" fill="{TEXT}">'
        f"{escape(words)}</text>"
    )


def replace_table(page: str, table: str) -> str:
    """Return a page with another table between the markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{BEGIN} is missing"
    assert end, f"{END} is missing"
    return f"{before}{begin}\n{table}\n{end}{after}"


def written_files() -> Mapping[Path, str]:
    """Return the contents of the page and of the chart, by path."""
    runs = read_runs()
    return {PAGE: replace_table(PAGE.read_text("utf-8"), write_table(runs)), CHART: draw_chart(runs)}


def main() -> int:
    for path, text in written_files().items():
        path.write_text(text, "utf-8")
        print(f"written to {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
