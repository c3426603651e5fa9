"""Bulk requests of long texts: the seconds for 10 requests of 256 texts, 115,000 tokens each.

    make bench-bulk

The documentation of Infinity 0.0.25 ("Benchmarking details") has this table for bge-small's shape. All 10
requests are sent at once. There they have the same texts, which a server may compute once for several
requests. Here all texts differ. vecmill runs with each engine and precision of this processor, over HTTP.
sentence-transformers runs in process, one request after another. If `make bench-peers` has installed them,
infinity runs over HTTP, and fastembed in process. Servers that already run take part by their URL:

    make bench-bulk ARGS='--server "TEI (candle)=http://127.0.0.1:8080" --row TEI'

They serve the model that `--save-model DIR` writes to DIR/model: bge-small's shape with random weights. The
table has the largest difference of the embeddings from those of sentence-transformers in fp32.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.classifier_inputs import make_texts
from bench.generator import send_requests
from bench.program import SERVE_WITH_ENGINES, START_TIMEOUT_S, make_parser, start
from bench.published.articles import BULK_REQUESTS, BULK_S, BULK_TEXTS, BULK_TOKENS, INFINITY_DOCS
from bench.published.bulk_peers import (
    FASTEMBED,
    export_model,
    infinity_program,
    infinity_server,
    run_fastembed,
)
from bench.published.report import NOT_MEASURED, Report, ahead, spread
from bench.published.servers import PATIENT, SEED, name_plan
from bench.report import Figure, markdown_table, ratios_of
from bench.rigs import ORACLE_BATCH, remote_process
from bench.sizes import run_script
from support.plain_http import post
from support.server import NotStarted, live_server
from vecmill.engines import ENGINES, find_engine
from vecmill.errors import SetupError
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill_server.bench.request_sets import ServerApi, make_bodies
from vecmill_server.bench.target import MeasuredServer, find_model

SHAPE, CPU = "bge-small", "cpu"
TOKENS = BULK_TOKENS // BULK_TEXTS  # of each text, special ones included
COMPARED = 4
TIMEOUT_S = 7_200.0
REFERENCE = "sentence-transformers (torch)"
TITLE = "Bulk requests: bge-small's shape, 256 texts of 449 tokens a request"
# Why a row may fail: random weights lose more than real ones, and servers break connections.
FAILURES = (
    *(NotStarted, SetupError, AssertionError, OSError, ValueError, LookupError),
    *(HTTPException, subprocess.SubprocessError),
)
# Published rows whose precision is int8 are compared with vecmill in int8.
INT8 = "int8"


@dataclass(frozen=True, slots=True)
class Work:
    """The requests: their texts, and a few texts for the comparison with the reference."""

    model: Path
    requests: Sequence[Sequence[str]]

    @property
    def compared(self) -> list[str]:
        return list(self.requests[0][:COMPARED])


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one contestant in one round: the seconds of all requests, and the embeddings of `Work.compared`."""

    seconds: float
    embeddings: FloatArray


Measure = Callable[[Work, Path], Outcome]


@dataclass(slots=True)
class Row:
    """A line of the table. `measure` is `None` for a contestant that does not run here."""

    name: str
    measure: Measure | None = None
    is_ours: bool = False
    seconds: list[float] = field(default_factory=list)
    difference: float | None = None
    refusal: str = ""

    @property
    def published_s(self) -> float | None:
        return BULK_S.get(self.name)

    @property
    def is_int8(self) -> bool:
        return INT8 in self.name


class Reference:
    """sentence-transformers, called with one request after another."""

    def __init__(self, model: Path) -> None:
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(str(model), device=CPU)

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Return the embeddings, (texts, dimensions), float32."""
        found = self._model.encode(list(texts), batch_size=ORACLE_BATCH, normalize_embeddings=True)
        return np.asarray(found, np.float32)

    def seconds(self, requests: Sequence[Sequence[str]]) -> float:
        """Return the seconds of all requests."""
        began = time.perf_counter()
        for texts in requests:
            self.encode(texts)
        return time.perf_counter() - began


def run_reference(work: Work, folder: Path) -> Outcome:
    """Run sentence-transformers in a process of its own."""
    with remote_process(Reference, work.model) as ask:
        embeddings = ask("encode", work.compared)
        return Outcome(ask("seconds", work.requests), embeddings)


def run_url(work: Work, folder: Path, url: str) -> Outcome:
    """Send all requests at once to a server that already runs."""
    target = MeasuredServer.of(url, ServerApi.EMBEDDINGS, None)
    model = find_model(target)
    answer = post(target.url, {"model": model, "input": work.compared, "encoding_format": "float"})
    embeddings = np.array([each["embedding"] for each in answer["data"]], np.float32)
    bodies = [
        make_bodies(ServerApi.EMBEDDINGS, model, texts, len(texts), "float")[0] for texts in work.requests
    ]
    file = folder / "bodies"
    file.write_bytes(b"".join(body + b"\n" for body in bodies))
    count = len(bodies)
    found = send_requests(target, file, connections=count, requests=count, timeout_s=TIMEOUT_S)
    return Outcome(found.elapsed_s, embeddings)


def run_vecmill(work: Work, folder: Path, plan: EnginePlan) -> Outcome:
    """Start the server with a plan, and send all requests at once. Raises `NotStarted`."""
    place = folder / name_plan(plan).replace(" ", "-")
    place.mkdir(exist_ok=True)  # of a former round, with the prepared weights
    arguments = [str(work.model), "--engine", plan.engine, "--precision", str(plan.precision), *PATIENT]
    with live_server(
        place, arguments=arguments, command=[str(SERVE_WITH_ENGINES)], timeout_s=START_TIMEOUT_S
    ) as server:
        return run_url(work, place, server.url)


def run_infinity(work: Work, folder: Path, engine: str, *, is_int8: bool = False) -> Outcome:
    """Start infinity, and send all requests at once. Raises `NotStarted`."""
    model = work.model if engine == "torch" else export_model(work.model, folder, is_int8=is_int8)
    with infinity_server(model, folder, engine) as url:
        return run_url(work, folder, url)


def run_fastembed_rows(work: Work, folder: Path) -> Outcome:
    """Run fastembed in process, one request after another. Raises `NotStarted`."""
    found = run_fastembed(export_model(work.model, folder), work.requests, work.compared)
    return Outcome(found["seconds"], np.array(found["embeddings"], np.float32))


def installed_peers() -> dict[str, Measure]:
    """Return the published contestants that `make bench-peers` installed."""
    peers: dict[str, Measure] = {}
    if infinity_program("optimum").exists():
        peers["infinity-optimum-int8"] = partial(run_infinity, engine="optimum", is_int8=True)
        peers["infinity-optimum (onnx)"] = partial(run_infinity, engine="optimum")
    if infinity_program("torch").exists():
        peers["infinity (torch)"] = partial(run_infinity, engine="torch")
    if FASTEMBED.exists():
        peers["fastembed (onnx)"] = run_fastembed_rows
    return peers


def list_rows(servers: Mapping[str, str]) -> list[Row]:
    """Return vecmill with each engine and precision, and the published rows; then the other servers."""
    rows = [Row(REFERENCE, run_reference)]
    for engine, entry in ENGINES.items():
        offered = find_engine(engine).find_capabilities().devices.get(CPU, ()) if entry.is_installed else ()
        for precision in offered:
            plan = EnginePlan(engine, Precision(precision), CPU)
            rows.append(Row(f"vecmill {name_plan(plan)}", partial(run_vecmill, plan=plan), is_ours=True))
    others: dict[str, Measure | None] = dict.fromkeys(name for name in BULK_S if name != REFERENCE)
    others |= installed_peers()
    others |= {name: partial(run_url, url=url) for name, url in servers.items()}
    return [*rows, *(Row(name, measure) for name, measure in others.items())]


def measure(rows: Sequence[Row], work: Work, folder: Path, rounds: int) -> None:
    """Run all rows in turn, `rounds` times. The first row is the reference."""
    reference: FloatArray | None = None
    for _ in range(rounds):
        for row in rows:
            if row.measure is None or row.refusal:
                continue
            try:
                found = row.measure(work, folder)
            except FAILURES as refusal:  # one row does not end the others
                row.refusal = (str(refusal).strip() or type(refusal).__name__).splitlines()[-1]
                print(f"{row.name} is left out: {row.refusal}", flush=True)
                continue
            if row.name == REFERENCE:
                reference = found.embeddings
            if reference is not None:
                row.difference = float(np.abs(found.embeddings - reference).max())
            row.seconds.append(found.seconds)
            print(f"{row.name}: {found.seconds:.1f} s", flush=True)


def best_of(rows: Sequence[Row], *, is_int8: bool) -> Row | None:
    """Return vecmill's fastest row in fp32, or in int8."""
    kind = INT8 if is_int8 else str(Precision.FP32)
    ours = [row for row in rows if row.is_ours and row.seconds and kind in row.name]
    return min(ours, key=lambda row: median(row.seconds), default=None)


def ratios_to_ours(row: Row, rows: Sequence[Row]) -> Sequence[float]:
    """Return the seconds of a row over those of vecmill's best row of its precision, round by round."""
    ours = best_of(rows, is_int8=row.is_int8)
    if ours is None or not row.seconds or row.is_ours:
        return []
    rounds = min(len(row.seconds), len(ours.seconds))  # a row that fails is not measured again
    return ratios_of(row.seconds[:rounds], ours.seconds[:rounds])


def write_rows(rows: Sequence[Row], requests: int, texts: int) -> str:
    """Return the table, for a number of requests of so many texts."""
    headings = [
        "contestant",
        f"seconds for {requests} requests",
        "requests/s",
        "tokens/s",
        "largest difference",
        "times vecmill's best of its precision",
        f"published: seconds for {BULK_REQUESTS} requests",
    ]
    return markdown_table(headings, [_cells(row, rows, requests, texts) for row in rows])


def _cells(row: Row, rows: Sequence[Row], requests: int, texts: int) -> list[str]:
    published = "-" if row.published_s is None else f"{row.published_s:g}"
    if not row.seconds:
        return [
            row.name,
            f"refused: {row.refusal}" if row.refusal else NOT_MEASURED,
            "-",
            "-",
            "-",
            "-",
            published,
        ]
    rate = requests / median(row.seconds)
    ratios = ratios_to_ours(row, rows)
    return [
        row.name,
        spread(row.seconds),
        f"{rate:.3f}",
        f"{rate * texts * TOKENS:.0f}",
        "-" if row.difference is None else f"{row.difference:.0e}",
        spread(ratios, 2) if ratios else "-",
        published,
    ]


def figures_of(rows: Sequence[Row]) -> list[Figure]:
    """Return the seconds of each row, and the promise that vecmill is ahead of each contestant."""
    figures = []
    for row in rows:
        if row.seconds:
            figures.append(Figure(row.name, "s", tuple(row.seconds)))
        ratios = ratios_to_ours(row, rows)
        if ratios:
            figures.append(ahead(f"{row.name} / vecmill's best of its precision", ratios))
    return figures


def draw(rows: Sequence[Row], texts: int, axes: Any) -> None:
    """Draw the seconds for 256 texts as bars, those published beside. `texts` is the number of all texts."""
    height = 0.4
    here = [median(row.seconds) * BULK_TEXTS / texts if row.seconds else 0.0 for row in rows]
    there = [(row.published_s or 0.0) / BULK_REQUESTS for row in rows]
    for number, (name, widths) in enumerate((("here", here), ("published, other hardware", there))):
        places = [index + height * (number - 0.5) for index in range(len(rows))]
        bars = axes.barh(places, widths, height, label=name)
        axes.bar_label(bars, labels=[f"{width:.0f}" if width else "" for width in widths], fontsize=8)
    axes.set_yticks(range(len(rows)), labels=[row.name for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds for {BULK_TEXTS} texts (shorter is better)")
    axes.legend()


def make_work(model: Path, requests: int, texts: int) -> Work:
    """Return requests of different texts."""
    drawn = make_texts(SEED, TOKENS, requests * texts)
    return Work(model, [drawn[first : first + texts] for first in range(0, len(drawn), texts)])


@contextmanager
def model_folder(kept: Path | None) -> Iterator[Path]:
    """Write the model to a folder, which `kept` names if it is to stay; give the model's directory."""
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as name:
        folder = Path(name) if kept is None else kept
        if not (folder / "model").exists():
            folder.mkdir(parents=True, exist_ok=True)
            run_script(Path(sys.executable), "size_models.py", SHAPE, folder)
        yield folder / "model"


def read_servers(named: Sequence[str]) -> dict[str, str]:
    """Return the URLs by name, of `NAME=URL`."""
    return {name: url for name, _, url in (each.partition("=") for each in named)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=1)
    parser.add_argument("--requests", type=int, default=BULK_REQUESTS)
    parser.add_argument("--texts", type=int, default=BULK_TEXTS, help="Of each request.")
    parser.add_argument("--row", action="append", help="A part of the names of the rows; all by default.")
    parser.add_argument("--server", action="append", default=[], help="NAME=URL of a server that runs.")
    parser.add_argument("--save-model", type=Path, help="Where the model stays, for servers that run.")
    with start(parser, arguments, seed=SEED) as run:
        options = run.options
        rows = list_rows(read_servers(options.server))
        if options.row:
            kept = (REFERENCE, *options.row)
            rows = [row for row in rows if any(part in row.name for part in kept)]
        with model_folder(options.save_model) as model:
            work = make_work(model, options.requests, options.texts)
            measure(rows, work, run.folder, options.rounds)
    page = (
        f"{options.requests} requests of {options.texts} texts of {TOKENS} tokens, all at once, "
        f"{options.rounds} rounds. Published: {INFINITY_DOCS}, all requests with the same texts.\n\n"
        f"{write_rows(rows, options.requests, options.texts)}"
    )
    texts = options.requests * options.texts
    report = Report("bulk", TITLE, page, figures_of(rows), run.settings, lambda axes: draw(rows, texts, axes))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
