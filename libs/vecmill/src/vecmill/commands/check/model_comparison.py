"""The comparison of a model with a reference, and what `vecmill check` says and records of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec

from vecmill.config import MillConfig, default_cache_dir
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.errors import InvalidConfig
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.cores import available_cores
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.operations.sides import load_query_engine
from vecmill.requests import Purpose
from vecmill.serving_plan.choice_at_load import plan_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.download_log import show_downloads
from vecmill.values.engine_plan import EngineInfo
from vecmill.values.messages import pip_command
from vecmill.values.preparation_log import show_preparation
from vecmill.values.sample_texts import sample_texts
from vecmill.verification.check_records import CheckRecord, Finding
from vecmill.verification.comparison import NEIGHBOURS, VerificationReport, compare_with_reference
from vecmill.verification.precision_gate import ACCEPTED_COSINES
from vecmill.verification.reference import (
    OWN_REFERENCE,
    Reference,
    has_library,
    load_reference,
    reference_library,
)
from vecmill.verification.self_check import Samples, check_engine

# The largest difference that is put down to rounding, of values up to 1.
TOLERANCE = 1e-4


def is_accepted(report: VerificationReport) -> bool:
    """Return whether the outputs are within the limit of the precision in which they were computed."""
    least = ACCEPTED_COSINES.get(report.precision)
    return report.is_within(TOLERANCE) if least is None else report.comparison.worst_cosine >= least


def describe_verdict(report: VerificationReport) -> str:
    """Return whether the outputs are those of the reference, or as near as their precision allows."""
    least = ACCEPTED_COSINES.get(report.precision)
    if least is not None:
        relation = "within" if is_accepted(report) else "beyond"
        kept = report.accuracy.kept
        neighbours = "" if kept is None else f"; {kept:.1%} of the best {NEIGHBOURS} are kept (recall)"
        return (
            f"{relation} the limit of {report.precision}: the lowest cosine is "
            f"{report.comparison.worst_cosine:.5f}, and {least:g} is accepted{neighbours}"
        )
    of_what = " of the largest value" if report.comparison.scale > 1.0 else ""
    relation = "equal to the reference" if report.is_within(TOLERANCE) else "different from the reference"
    return f"{relation}: the limit is {TOLERANCE:.0e}{of_what}"


def describe_own_reference(found: "ModelComparison") -> str | None:
    """Return what a comparison with vecmill's own engine cannot find; `None` for another reference."""
    if not any(report.reference == OWN_REFERENCE for report in found.reports):
        return None
    cure = "No other reference computes this model."
    library = reference_library(found.description)
    if find_spec(library) is None:
        command = pip_command("install", library.replace("_", "-"))
        cure = f"For a comparison with the model's own library: {command}"
    return (
        "The reference was vecmill's own engine in fp32. This comparison finds errors of batches and of "
        f"reduced precision, but no error that both have in common. {cure}"
    )


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The comparison of a model that `engine` computes: one report, or those of documents and of queries."""

    description: ModelDescription
    engine: EngineInfo
    reports: tuple[VerificationReport, ...]

    def record(self, checked_at: datetime, *, has_own_texts: bool) -> CheckRecord:
        """Return what servers show of the comparison."""
        sides = (None,) if self.description.router is None else ("documents", "queries")
        findings = [
            Finding(side, report.accuracy, is_accepted(report))
            for side, report in zip(sides, self.reports, strict=False)
        ]
        return CheckRecord(checked_at, has_own_texts, tuple(findings))


def compare_model(
    model: str | None,
    config: MillConfig,
    *,
    task: str | None = None,
    trusts_code: bool = False,
    texts: Sequence[str] | None = None,
    count: int = 300,
) -> ModelComparison:
    """Compare the outputs of a mill with `config` with a reference, over `texts` or `count` sample texts.

    Without the library there is no report on queries in a table. `task` overrides the task of the model's
    directory. With `trusts_code` the model's own code may be run. Raises `SetupError`.
    """
    if task not in (None, *Task):
        raise InvalidConfig(f"--task is {task!r}; it must be one of {', '.join(Task)}.")
    with show_downloads():
        location = locate_model(model, trusts_code=trusts_code)
    description = describe_model(location, None if task is None else Task(task))
    compared = texts or sample_texts(count)
    cores, cache_dir = config.cores or available_cores(), config.cache_dir or default_cache_dir()
    served = plan_model(description, config)
    with show_preparation():
        engine = load_engine(description, served.plan, cores=cores, cache_dir=served.cache_dir)
    info = engine.info
    report = _compare(description, engine, load_reference(description, cache_dir), compared)
    if description.router is None:
        return ModelComparison(description, info, (report,))
    query = description.router.query
    of_documents = replace(report, model=f"{report.model}, documents")
    if query.is_table and not has_library(description):
        return ModelComparison(description, info, (of_documents,))
    reference = load_reference(description, cache_dir, Purpose.QUERY)
    engine = load_query_engine(query, config, load_engine, cores=cores)
    of_queries = replace(_compare(query, engine, reference, compared), model=f"{report.model}, queries")
    return ModelComparison(description, info, (of_documents, of_queries))


def _compare(
    description: ModelDescription, engine: Engine, reference: Reference, texts: Sequence[str]
) -> VerificationReport:
    try:
        budget = CoreBudget(engine.info.lane_widths[-1])  # no other model computes
        check_engine(description, engine, Samples.of_texts(Tokenizer.load(description), description), budget)
        return compare_with_reference(description, engine, reference, texts)
    finally:
        engine.close()
