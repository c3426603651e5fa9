"""The run of `vecmill optimize`: search the best plan for a model, and write a directory to serve from."""

import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from vecmill.commands.optimize.bench import Worker, WorkerBench, find_engine_capabilities
from vecmill.commands.optimize.candidates import SearchSpace, choose_engines, leave_torch_out, list_candidates
from vecmill.commands.optimize.choice import Goal, choose, describe_missing
from vecmill.commands.optimize.journal import Journal, JournalledBench
from vecmill.commands.optimize.measurements import Measurements
from vecmill.commands.optimize.output_directory import (
    JOURNAL_FILE,
    REPORT_FILE,
    OptimizationResult,
    clear_prepared,
    copy_model,
    open_directory,
    write_manifest,
)
from vecmill.commands.optimize.plan_quality import LabelFiles, PlanKind, PlanQuality, measure_qualities
from vecmill.commands.optimize.report import can_plot, draw_plots, write_report
from vecmill.commands.optimize.search import CandidateFailed, Search
from vecmill.commands.optimize.worker import WorkerSetup
from vecmill.config import default_cache_dir
from vecmill.directory_layouts import describe_model
from vecmill.engines import default_engine, find_engine
from vecmill.engines.base import EngineCapabilities
from vecmill.errors import InvalidConfig, SetupError, UnsupportedModel
from vecmill.hardware.cores import Topology
from vecmill.models import ModelDescription, fingerprint_model, locate_model
from vecmill.models.location import PairName
from vecmill.serving_plan.manifest import Machine, runtime_versions
from vecmill.serving_plan.plans import JsonObject, write_plan
from vecmill.values.clock import monotonic
from vecmill.values.download_log import show_downloads
from vecmill.values.engine_plan import DEFAULT_ENGINE, EnginePlan
from vecmill.values.sample_texts import sample_texts

SAMPLE_TEXTS = 500
FEWEST_TEXTS = 32
PREPARE_TIMEOUT_S = 600.0

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """The options of the command. By default, `texts` are sample texts and `engines` are all engines.

    With `labels`, the plans are evaluated on labelled texts too.
    """

    model: str | None
    directory: Path
    goal: Goal = field(default_factory=Goal)
    texts: Sequence[str] = ()
    engines: Sequence[str] = ()
    time_limit_s: float = 300.0
    cache_dir: Path | None = None
    labels: LabelFiles | None = None


class Interrupted(Exception):
    """Raised after Ctrl-C; the measurements so far are in the journal and the report."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """The inputs of a run in addition to its options: model, machine, versions, candidates and texts."""

    description: ModelDescription
    model_fingerprint: str
    machine: Machine
    versions: Mapping[str, str]
    space: SearchSpace
    texts: Sequence[str]

    def run_document(self, goal: Goal) -> JsonObject:
        """Return the settings that must be the same for a run to continue another run."""
        return {
            "model": self.model_fingerprint,
            "machine": self.machine.fingerprint,
            "versions": dict(self.versions),
            "texts": sha256(json.dumps(list(self.texts)).encode()).hexdigest()[:16],
            "kinds": [write_plan(plan) for plan in self.space.kinds],
            "demand": asdict(goal),
        }

    def result(
        self,
        goal: Goal,
        measured: Measurements,
        qualities: Mapping[PlanKind, PlanQuality] = MappingProxyType({}),
    ) -> OptimizationResult:
        """Return the result of the run from its measurements."""
        return OptimizationResult(
            model=self.description.name,
            model_fingerprint=self.model_fingerprint,
            machine=self.machine,
            versions=self.versions,
            goal=goal,
            measured=measured,
            choice=choose(measured, goal),
            left_out=self.space.left_out,
            texts=len(self.texts),
            qualities=qualities,
        )


def optimize_model(
    options: OptimizeOptions, on_step: Step = lambda _: None, on_advice: Step = lambda _: None
) -> OptimizationResult:
    """Search the best plan, and write the directory. Raises `SetupError`, and `Interrupted` after Ctrl-C.

    `on_advice` takes sentences about engines that are worth installing, before anything is measured.
    Continues an interrupted run in the same directory if model, texts, machine, versions, engines and
    requirements are the same.
    """
    open_directory(options.directory)  # before the model is read, which can take minutes
    if options.labels is not None:
        options.labels.check()
    found = collect_context(options, on_step, on_advice)
    journal = Journal.open(options.directory / JOURNAL_FILE, found.run_document(options.goal))
    if journal.is_resumed:
        on_step(f"continuing an earlier run (passes: {len(journal.passes)})")
    with tempfile.TemporaryDirectory(prefix="vecmill-optimize-") as scratch:
        setup = write_worker_setup(found, options, Path(scratch))
        measured = _search(found, options, journal, setup, on_step)
        try:
            qualities = _measure_qualities(options, measured, setup, on_step)
            result = found.result(options.goal, measured, qualities)
            on_step("writing the directory")
            _write_directory(result, found.description, setup, options.directory)
        except KeyboardInterrupt:
            raise Interrupted from None
    journal.write({"done": True})
    return result


def _measure_qualities(
    options: OptimizeOptions, measured: Measurements, setup: WorkerSetup, on_step: Step
) -> Mapping[PlanKind, PlanQuality]:
    """Evaluate the plans on labelled texts, if there are some. Raises `SetupError`."""
    if options.labels is None:
        return {}
    model = setup.model if setup.graph is None else str(Path(setup.model) / setup.graph)
    return measure_qualities(measured, options.labels, model, setup.cache_dir, on_step)


def _only_engine(description: ModelDescription) -> Sequence[str]:
    """Return the only engine that runs the model, empty if there are several."""
    name = default_engine(description)
    return () if name == DEFAULT_ENGINE else (name,)


def collect_context(
    options: OptimizeOptions, on_step: Step = lambda _: None, on_advice: Step = lambda _: None
) -> RunContext:
    """Read the model, list the candidates of this machine, and choose the texts. Raises `SetupError`."""
    _refuse_pair(options.model)
    texts = _choose_texts(options.texts)
    on_step("reading the model")
    with show_downloads():
        description = describe_model(locate_model(options.model))
    if description.adapter is not None:
        raise UnsupportedModel(
            f"{description.adapter.config_file}: an adapter cannot be optimised, because its base is "
            "elsewhere. Merge it with `merge_and_unload` of the peft package, and save the result."
        )
    machine = Machine.current()
    on_step("looking for engines")
    engines = options.engines or _only_engine(description)
    for sentence in describe_missing(engines):
        on_advice(sentence)
    space = find_search_space(engines, machine.cores)
    versions = runtime_versions({plan.engine for plan in space.kinds})
    return RunContext(description, fingerprint_model(description), machine, versions, space, texts)


def _refuse_pair(model: str | None) -> None:
    """Raise `UnsupportedModel` for two directories that are served as one: the output is one directory."""
    pair = PairName.parse(model)
    if pair is not None:
        raise UnsupportedModel(
            "Plans are for texts, since pictures are always computed in fp32. Optimise the model of texts: "
            f"`vecmill optimize {shlex.quote(pair.text)} -o DIRECTORY`, and serve "
            f"text=DIRECTORY,image={pair.image}."
        )


def _search(
    found: RunContext, options: OptimizeOptions, journal: Journal, setup: WorkerSetup, on_step: Step
) -> Measurements:
    """Search the best plan. After Ctrl-C writes a report of the measurements and raises `Interrupted`."""
    scratch = Path(setup.texts_file).parent
    with closing(WorkerBench(setup, scratch, limit_s=options.time_limit_s)) as bench:
        search = Search(
            found.space,
            JournalledBench(bench, journal),
            options.goal,
            limit_s=options.time_limit_s,
            clock=monotonic,
            on_step=on_step,
        )
        try:
            return search.run()
        except KeyboardInterrupt:
            if search.measured is not None:
                known = found.result(options.goal, search.measured)
                _write_pages(known, options.directory, is_interrupted=True)
            raise Interrupted from None


def find_search_space(engines: Sequence[str], cores: int) -> SearchSpace:
    """Return the candidates of this machine.

    Raises `InvalidConfig`, and `MissingExtra` if a named engine is not installed.
    """
    chosen, left_out = choose_engines(engines)
    capabilities: dict[str, EngineCapabilities] = {}
    for name in chosen:
        if engines:
            find_engine(name)  # raises `MissingExtra`
        try:
            capabilities[name] = find_engine_capabilities(name)
        except CandidateFailed as failure:
            left_out[name] = f"it does not start on this machine: {failure}"
    if not engines:
        capabilities, dropped = leave_torch_out(capabilities)
        left_out |= dropped
    widest = Topology.read().widest_call(cores)
    return list_candidates(capabilities, cores=cores, widest=widest, left_out=left_out)


def _choose_texts(own: Sequence[str]) -> list[str]:
    """Return the user's texts without duplicates, or sample texts.

    Raises `InvalidConfig` for too few texts.
    """
    if not own:
        return sample_texts(SAMPLE_TEXTS)
    texts = list(dict.fromkeys(text for text in own if text.strip()))
    if len(texts) < FEWEST_TEXTS:
        raise InvalidConfig(
            f"--texts has {len(texts)} different texts, and at least {FEWEST_TEXTS} are needed. Add texts, "
            "or remove the option to use sample texts."
        )
    return texts


def write_worker_setup(found: RunContext, options: OptimizeOptions, scratch: Path) -> WorkerSetup:
    """Return the setup of the workers; write the texts to a file in `scratch`."""
    description = found.description
    graph = description.exported_graph
    file = scratch / "texts.json"
    file.write_text(json.dumps(list(found.texts)), encoding="utf-8")
    return WorkerSetup(
        model=str(description.directory),
        name=description.name,
        graph=None if graph is None else str(graph.relative_to(description.directory)),
        texts_file=str(file),
        cores=found.machine.cores,
        cache_dir=str(options.cache_dir or default_cache_dir()),
    )


def _write_directory(
    result: OptimizationResult, description: ModelDescription, setup: WorkerSetup, directory: Path
) -> None:
    """Write the model, the prepared files, the report and, as the last file, the manifest.

    Raises `SetupError`.
    """
    copy_model(description, directory)
    _prepare(result.choice.plan, setup, directory)
    _write_pages(result, directory)
    write_manifest(result, directory)


def _write_pages(result: OptimizationResult, directory: Path, *, is_interrupted: bool = False) -> None:
    measured, goal, choice = result.measured, result.goal, result.choice
    pictures = draw_plots(measured, goal, choice, directory) if can_plot() else []
    page = write_report(result, pictures, is_interrupted=is_interrupted)
    (directory / REPORT_FILE).write_text(page, encoding="utf-8")


def _prepare(plan: EnginePlan, setup: WorkerSetup, directory: Path) -> None:
    """Have the engine prepare the copied model in its final directory, and test that the model loads.

    Raises `SetupError`.
    """
    folder = clear_prepared(directory).resolve()
    placed = replace(setup, model=str(directory.resolve()), graph=None, cache_dir=str(folder))
    with closing(Worker()) as worker:
        try:
            worker.request("load", timeout_s=PREPARE_TIMEOUT_S, setup=asdict(placed), plan=write_plan(plan))
        except CandidateFailed as failure:
            raise SetupError(f"The model does not load from {directory}: {failure}.") from failure
