"""The results of the comparison as Markdown, and as the section of docs/contributing/peers.md.

make bench-peers-page

publishes the results that `make bench-peers` and `make bench-rerankers` wrote: it copies them to
docs/benchmarks, in place of earlier results of the same kind of processor, and writes the section, the newest
results first.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from statistics import median

from bench.peers.loads import LEAST_REQUESTS, PeerLoad
from bench.peers.models import MODEL
from bench.peers.plots import draw_ratios
from bench.peers.results import SAME_FROM, WRONG_BELOW, Comparison, PeerResult, mean_ratio, speed_ratios
from bench.peers.roster import BASE, Transport
from bench.report import FOLDER, markdown_table
from bench.rerankers import write_table
from support.source_tree import ROOT

RESULTS = FOLDER / "peers.json"
RERANKED = FOLDER / "rerankers.json"
PUBLISHED = ROOT / "docs/benchmarks"
PUBLISHED_RERANKED = PUBLISHED / "rerankers"
PAGE = ROOT / "docs/contributing/peers.md"
BEGIN, END = "<!-- peers: written by make bench-peers-page -->", "<!-- peers: end -->"
NOT_MEASURED = (
    "Not measured yet on an idle machine. `make bench-peers bench-peers-page` writes the tables here."
)
NONE = "-"


def write_files(found: Comparison) -> None:
    """Write the results, the page and the plot into build/bench."""
    found.save(RESULTS)
    RESULTS.with_suffix(".md").write_text(write_report(found) + "\n", "utf-8")
    plot = RESULTS.with_suffix(".png")
    if not draw_ratios(found, plot):
        plot.unlink(missing_ok=True)


def write_report(found: Comparison) -> str:
    """Return the machine, the tables, the versions, and where a peer is better."""
    parts = [describe_run(found), write_figures(found), write_ratios(found), write_latencies(found)]
    parts += [list_better(found), list_reasons(found), list_versions(found)]
    return "\n\n".join(part for part in parts if part)


def describe_run(found: Comparison) -> str:
    """Return the machine, the date and the settings."""
    machine, settings = found.machine, found.settings
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, Linux, "
        f"Python {machine['python']}, load average {machine['load_average']:.2f} before the run. "
        f"Finished {found.finished_at.partition('T')[0]}. `{settings['command']}`: {count_rounds(found)} of "
        f"{settings['seconds']} s for each load, order from seed {settings['seed']}."
    )


def count_rounds(found: Comparison) -> str:
    """Return how many rounds were measured: fewer than asked for if the run was interrupted."""
    counts = [len(peer.rounds) for peer in found.peers if peer.is_measured]
    fewest, most = min(counts, default=0), max(counts, default=0)
    return f"{most} round{'s' * (most != 1)}" if fewest == most else f"{fewest} to {most} rounds"


def write_figures(found: Comparison) -> str:
    """Return the table of the medians, with a row for each peer."""
    headings = ["", *(f"{load.name}, {load.unit}" for load in found.loads)]
    headings += ["worst cosine", "memory (PSS), MB", "ready after, s: first start, later ones"]
    rows = [[_name(peer), *_figure_cells(peer, found.loads)] for peer in found.peers]
    return markdown_table(headings, rows)


def _figure_cells(peer: PeerResult, loads: Sequence[PeerLoad]) -> Iterator[str]:
    if not peer.is_measured:
        yield "not measured"
        yield from [""] * (len(loads) + 2)
        return
    for load in loads:
        values = peer.values(load)
        yield f"{_number(median(values))}{_few(peer, load)}" if values else NONE
    yield NONE if peer.cosine_min is None else f"{peer.cosine_min:.5f}"
    yield NONE if peer.memory_mb is None else f"{peer.memory_mb:.0f}"
    yield ", ".join(f"{seconds:.1f}" for seconds in peer.ready_s) or NONE


def _few(peer: PeerResult, load: PeerLoad) -> str:
    """Return a remark on a figure of too few requests. A library has calls, and no clients."""
    is_server = peer.transport == Transport.HTTP
    requests, least = peer.least_requests(load), load.least_requests if is_server else LEAST_REQUESTS
    if requests is None or requests >= least:
        return ""
    return f" ({requests} {'requests' if is_server else 'calls'})"


def write_ratios(found: Comparison) -> str:
    """Return the table of the speeds as multiples of the base, with the spread over the rounds."""
    base = found.base()
    if base is None:
        return ""
    rows = []
    for peer in found.peers:
        if peer.is_measured and peer is not base:
            mean = mean_ratio(peer, base, found.loads)
            cells = [_ratio(speed_ratios(peer, base, load)) for load in found.loads]
            rows.append([_name(peer), *cells, NONE if mean is None else _mean(*mean, len(cells))])
    if not rows:
        return ""
    table = markdown_table(["", *(load.name for load in found.loads), "geometric mean"], rows)
    title = f"Speed as a multiple of `{BASE}` (above 1 is faster), median (minimum to maximum) of the rounds:"
    return f"{title}\n\n{table}"


def _mean(ratio: float, loads: int, of: int) -> str:
    return f"{ratio:.2f}" if loads == of else f"{ratio:.2f} ({loads} of {of} loads)"


def write_latencies(found: Comparison) -> str:
    """Return the table of the latencies over HTTP with many clients."""
    loads = [load for load in found.loads if not load.is_latency]
    rows = [
        [_name(peer), *(_percentiles(peer, load) for load in loads)]
        for peer in found.peers
        if peer.is_measured and peer.transport == "HTTP"
    ]
    if not rows:
        return ""
    table = markdown_table(["", *(load.name for load in loads)], rows)
    title = "Latency over HTTP under the loads with several clients, p50 / p99 in ms, medians of the rounds:"
    return f"{title}\n\n{table}"


def list_better(found: Comparison) -> str:
    """Return the loads in which a peer with the right embeddings is faster than the base, or smaller."""
    base = found.base()
    if base is None:
        return ""
    lines = []
    for peer in found.peers:
        if peer.name.startswith("vecmill") or peer.is_wrong or not peer.is_measured:
            continue
        faster = [(load, speed_ratios(peer, base, load)) for load in found.loads]
        lines += [
            f"- {peer.name}, {load.name}: {_ratio(ratios)} times the speed."
            for load, ratios in faster
            if ratios and median(ratios) > 1
        ]
        if peer.memory_mb is not None and base.memory_mb is not None and peer.memory_mb < base.memory_mb:
            lines.append(f"- {peer.name}: {peer.memory_mb:.0f} MB of memory, not {base.memory_mb:.0f} MB.")
    text = "\n".join(lines) or "Nowhere in this run."
    return f"Where a peer is better than `{BASE}`:\n\n{text}"


def list_reasons(found: Comparison) -> str:
    """Return why rows or cells have no figures, and which embeddings are wrong."""
    lines = [f"- {peer.name}: {peer.reason}" for peer in found.peers if peer.reason is not None]
    lines += [f"- {peer.name}, {reason}" for peer in found.peers for reason in peer.reasons()]
    lines += [
        f"- {peer.name}: wrong embeddings. The cosine of the worst text is {peer.cosine_min:.3f}."
        for peer in found.peers
        if peer.is_wrong
    ]
    return "Notes:\n\n" + "\n".join(line.replace("|", "\\|") for line in lines) if lines else ""


def list_versions(found: Comparison) -> str:
    """Return the versions and the command of each peer."""
    rows = [_version_cells(peer) for peer in found.peers if peer.is_measured]
    return markdown_table(["", "measured by", "embeddings as", "versions", "command"], rows) if rows else ""


def _version_cells(peer: PeerResult) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in peer.versions.items())
    how = [peer.transport, ", ".join(peer.encodings) or NONE, versions or NONE]
    return [peer.name, *how, f"`{peer.command}`" if peer.command else "started by hand"]


def read_published() -> list[Comparison]:
    """Return the published results of all kinds of processors, the newest first."""
    found = [Comparison.read(file) for file in PUBLISHED.glob("*.json")]
    return sorted(found, key=lambda one: one.finished_at, reverse=True)


def name_files(found: Comparison) -> str:
    """Return the name of the files of a kind of processor, such as `amd-epyc`, and of another model."""
    model = "" if found.model == MODEL else f"-{found.model}"
    return f"{name_processor(found.machine['processor'])}{model.lower()}"


def name_processor(processor: str) -> str:
    """Return the name of the files of a kind of processor."""
    name = re.sub(r"\(R\)|\(TM\)|Processor|CPU", "", processor)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def write_section(published: Sequence[Comparison]) -> str:
    """Return the part of docs/contributing/peers.md between its markers, markers included."""
    parts = []
    for found in published:
        plot = f"![Speed of the peers as multiples of {BASE}](../benchmarks/{name_files(found)}.png)"
        title = found.machine["processor"] + ("" if found.model == MODEL else f", {found.model}")
        parts.append(f"### {title}\n\n{write_report(found)}\n\n{plot}")
    reranked = [json.loads(file.read_text("utf-8")) for file in sorted(PUBLISHED_RERANKED.glob("*.json"))]
    parts += [f"### Rerank, {each['processor']}\n\n{write_table(each)}" for each in reranked if published]
    text = "\n\n".join(parts) or NOT_MEASURED
    return f"{BEGIN}\n\n{text}\n\n{END}"


def replace_section(page: str, section: str) -> str:
    """Return a page with another section between the markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{BEGIN} is missing"
    assert end, f"{END} is missing"
    return before + section + after


def _name(peer: PeerResult) -> str:
    is_lossy = peer.cosine_min is not None and WRONG_BELOW <= peer.cosine_min < SAME_FROM
    mark = " (wrong embeddings)" if peer.is_wrong else " (lossy)" if is_lossy else ""
    how = " (in process)" if peer.transport == "in process" else ""
    return f"{peer.name}{how}{mark}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(values: Sequence[float]) -> str:
    if not values:
        return NONE
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{median(values):.2f}{spread}"


def _percentiles(peer: PeerResult, load: PeerLoad) -> str:
    figures = [each.loads[load.name] for each in peer.rounds if load.name in each.loads]
    p50 = [each.p50_ms for each in figures if each.p50_ms is not None]
    p99 = [each.p99_ms for each in figures if each.p99_ms is not None]
    # In a round with fewer than 100 requests there is no p99.
    return f"{_number(median(p50))} / {_number(median(p99)) if p99 else NONE}" if p50 else NONE


def main() -> int:
    if not RESULTS.with_suffix(".png").exists():
        raise SystemExit("there are no results that compare peers: run make bench-peers first")
    PUBLISHED.mkdir(exist_ok=True)
    found = Comparison.read(RESULTS)
    name = name_files(found)
    if RERANKED.exists():
        PUBLISHED_RERANKED.mkdir(exist_ok=True)
        shutil.copyfile(RERANKED, PUBLISHED_RERANKED / f"{name_processor(found.machine['processor'])}.json")
    for suffix in (".json", ".png"):
        shutil.copyfile(RESULTS.with_suffix(suffix), PUBLISHED / f"{name}{suffix}")
    page = PAGE.read_text("utf-8")
    PAGE.write_text(replace_section(page, write_section(read_published())), "utf-8")
    print(f"written to {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
