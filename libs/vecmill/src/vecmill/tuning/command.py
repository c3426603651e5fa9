"""`vecmill optimize`: from a model to a directory that serves it as this machine does best."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from vecmill.clock import monotonic
from vecmill.config import default_cache_dir
from vecmill.engines import default_engine, find_engine
from vecmill.engines.base import Survey
from vecmill.errors import InvalidConfig, SetupError
from vecmill.fidelity.sample import sample_texts
from vecmill.models import ModelDescription, describe_model, fingerprint_model, locate_model
from vecmill.plan import DEFAULT_ENGINE, EnginePlan
from vecmill.topology import Topology
from vecmill.tuning.artefact import (
    JOURNAL_FILE,
    REPORT_FILE,
    Findings,
    clear_prepared,
    copy_model,
    open_directory,
    write_manifest,
)
from vecmill.tuning.bench import WorkerBench
from vecmill.tuning.calls import Worker, survey_engine
from vecmill.tuning.candidates import Space, choose_engines, leave_torch_out, list_candidates
from vecmill.tuning.choice import Demand, choose
from vecmill.tuning.documents import Document, write_plan
from vecmill.tuning.figures import Ledger
from vecmill.tuning.journal import Journal, JournalledBench
from vecmill.tuning.machine import Machine, runtime_versions
from vecmill.tuning.plots import can_plot, draw_plots
from vecmill.tuning.report import write_report
from vecmill.tuning.search import CandidateFailed, Search
from vecmill.tuning.worker import Subject

SAMPLE_TEXTS = 500
FEWEST_TEXTS = 32
PREPARE_TIMEOUT_S = 600.0

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asks for. `texts` are their own, or none; `engines` are those to try, or none for all."""

    model: str | None
    directory: Path
    demand: Demand = field(default_factory=Demand)
    texts: Sequence[str] = ()
    engines: Sequence[str] = ()
    time_limit_s: float = 300.0
    cache_dir: Path | None = None


class Interrupted(Exception):
    """The run was stopped; what was measured so far is in the journal and the report."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a run is bound to, beside what was asked for."""

    description: ModelDescription
    model_fingerprint: str
    machine: Machine
    versions: Mapping[str, str]
    space: Space
    texts: Sequence[str]

    def run_document(self, demand: Demand) -> Document:
        """What must be the same for a run to go on with the measurements of another."""
        return {
            "model": self.model_fingerprint,
            "machine": self.machine.fingerprint,
            "versions": dict(self.versions),
            "texts": sha256(json.dumps(list(self.texts)).encode()).hexdigest()[:16],
            "kinds": [write_plan(plan) for plan in self.space.kinds],
            "demand": asdict(demand),
        }

    def findings(self, demand: Demand, ledger: Ledger) -> Findings:
        """What follows from what was measured."""
        return Findings(
            model=self.description.name,
            model_fingerprint=self.model_fingerprint,
            machine=self.machine,
            versions=self.versions,
            demand=demand,
            ledger=ledger,
            choice=choose(ledger, demand),
            left_out=self.space.left_out,
            texts=len(self.texts),
        )


def optimize_model(order: Order, on_step: Step = lambda _: None) -> Findings:
    """Search, and write the directory. Raises `SetupError`; `Interrupted` after Ctrl-C.

    Where an earlier run into the same directory was interrupted, goes on with it if model, texts, machine,
    versions, engines and what is asked for are the same.
    """
    found = look_around(order, on_step)
    open_directory(order.directory)
    journal = Journal.open(order.directory / JOURNAL_FILE, found.run_document(order.demand))
    if journal.is_resumed:
        on_step(f"going on with an earlier run: {len(journal.passes)} passes are there")
    with tempfile.TemporaryDirectory(prefix="vecmill-optimize-") as scratch:
        subject = write_subject(found, order, Path(scratch))
        ledger = _search(found, order, journal, subject, on_step)
        findings = found.findings(order.demand, ledger)
        on_step("writing the directory")
        try:
            _write_directory(findings, found.description, subject, order.directory)
        except KeyboardInterrupt:
            raise Interrupted from None
    journal.write({"done": True})
    return findings


def _only_engine(description: ModelDescription) -> Sequence[str]:
    """The one engine that runs the model, if there is no more than one."""
    name = default_engine(description)
    return () if name == DEFAULT_ENGINE else (name,)


def look_around(order: Order, on_step: Step = lambda _: None) -> Circumstances:
    """Read the model, see what this machine has, and choose the texts. Raises `SetupError`."""
    texts = _choose_texts(order.texts)
    on_step("reading the model")
    description = describe_model(locate_model(order.model))
    machine = Machine.here()
    on_step("looking for engines")
    space = find_space(order.engines or _only_engine(description), machine.cores)
    versions = runtime_versions({plan.engine for plan in space.kinds})
    return Circumstances(description, fingerprint_model(description), machine, versions, space, texts)


def _search(found: Circumstances, order: Order, journal: Journal, subject: Subject, on_step: Step) -> Ledger:
    """Raises `Interrupted` after Ctrl-C, with the report of what is known written."""
    scratch = Path(subject.texts_file).parent
    with WorkerBench(subject, scratch, limit_s=order.time_limit_s) as bench:
        search = Search(
            found.space,
            JournalledBench(bench, journal),
            order.demand,
            limit_s=order.time_limit_s,
            clock=monotonic,
            on_step=on_step,
        )
        try:
            return search.run()
        except KeyboardInterrupt:
            if search.ledger is not None:
                known = found.findings(order.demand, search.ledger)
                _write_pages(known, order.directory, is_interrupted=True)
            raise Interrupted from None


def find_space(engines: Sequence[str], cores: int) -> Space:
    """What there is to try on this machine. Raises `InvalidConfig`, `MissingExtra` for what was asked for."""
    chosen, left_out = choose_engines(engines)
    surveys: dict[str, Survey] = {}
    for name in chosen:
        if engines:
            find_engine(name)  # says what to install
        try:
            surveys[name] = survey_engine(name)
        except CandidateFailed as failure:
            left_out[name] = f"it does not start here: {failure}"
    if not engines:
        surveys, dropped = leave_torch_out(surveys)
        left_out |= dropped
    widest = Topology.read().widest_call(cores)
    return list_candidates(surveys, cores=cores, widest=widest, left_out=left_out)


def _choose_texts(own: Sequence[str]) -> list[str]:
    """The person's own texts, each once, or a sample. Raises `InvalidConfig` if there are too few."""
    if not own:
        return sample_texts(SAMPLE_TEXTS)
    texts = list(dict.fromkeys(text for text in own if text.strip()))
    if len(texts) < FEWEST_TEXTS:
        raise InvalidConfig(
            f"--texts has {len(texts)} different texts; it takes {FEWEST_TEXTS} to tell anything. "
            "Add some, or leave the option out for a sample of our own."
        )
    return texts


def write_subject(found: Circumstances, order: Order, scratch: Path) -> Subject:
    """What workers are told; the texts go into a file in `scratch`."""
    description = found.description
    graph = description.exported_graph
    file = scratch / "texts.json"
    file.write_text(json.dumps(list(found.texts)), encoding="utf-8")
    return Subject(
        model=str(description.directory),
        name=description.name,
        graph=None if graph is None else str(graph.relative_to(description.directory)),
        texts_file=str(file),
        cores=found.machine.cores,
        cache_dir=str(order.cache_dir or default_cache_dir()),
    )


def _write_directory(
    findings: Findings, description: ModelDescription, subject: Subject, directory: Path
) -> None:
    """The model, what the engine prepares of it, the report, and last the manifest. Raises `SetupError`."""
    copy_model(description, directory)
    _prepare(findings.choice.plan, subject, directory)
    _write_pages(findings, directory)
    write_manifest(findings, directory)


def _write_pages(findings: Findings, directory: Path, *, is_interrupted: bool = False) -> None:
    ledger, demand, choice = findings.ledger, findings.demand, findings.choice
    pictures = draw_plots(ledger, demand, choice, directory) if can_plot() else []
    page = write_report(findings, pictures, is_interrupted=is_interrupted)
    (directory / REPORT_FILE).write_text(page, encoding="utf-8")


def _prepare(plan: EnginePlan, subject: Subject, directory: Path) -> None:
    """Have the engine prepare the copied model where it will be served, and prove that it loads.

    Raises `SetupError`.
    """
    folder = clear_prepared(directory).resolve()
    placed = replace(subject, model=str(directory.resolve()), graph=None, cache_dir=str(folder))
    worker = Worker()
    try:
        worker.ask("load", timeout_s=PREPARE_TIMEOUT_S, subject=asdict(placed), plan=write_plan(plan))
    except CandidateFailed as failure:
        raise SetupError(f"The model does not load from {directory}: {failure}.") from failure
    finally:
        worker.close()
