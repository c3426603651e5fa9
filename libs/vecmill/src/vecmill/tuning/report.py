"""`report.md`: what was chosen, why, and every figure, for people."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from vecmill.plan import EnginePlan
from vecmill.tuning.artefact import Findings
from vecmill.tuning.choice import NOISE_BOUND, may_be_chosen, median_score
from vecmill.tuning.figures import Accuracy, Ledger
from vecmill.tuning.search import describe_plan

HEADS = (
    "plan",
    "texts/s",
    "lone text, ms",
    "times as fast",
    "and alone",
    "cosine, worst",
    "cosine, mean",
    "kept",
    "memory, MB",
    "loads in, s",
    "passes",
    "",
)


def write_report(findings: Findings, pictures: Sequence[Path], *, is_interrupted: bool = False) -> str:
    """The page. `pictures` lie beside it."""
    parts = [
        _opening(findings, is_interrupted),
        _table(findings),
        _pictures(pictures),
        _method(findings),
        _left_out(findings),
        _circumstances(findings),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(findings: Findings, is_interrupted: bool) -> str:
    choice = findings.choice
    lines = [f"# {findings.model}, optimised", ""]
    if is_interrupted:
        lines += ["**This run was interrupted.** The same command goes on where it stopped.", ""]
    lines += [f"**{describe_plan(choice.plan)}**: {choice.reason}.", ""]
    speed = findings.ledger.speed_of(choice.plan)
    if speed is not None:
        lines.append(f"{speed.texts_per_s:.0f} texts/s, {speed.latency_s * 1000:.1f} ms for a lone text.")
    admission = findings.ledger.admission_of(choice.plan)
    if admission is not None:
        lines.append(_say_accuracy(admission.accuracy))
    return "\n".join(lines)


def _say_accuracy(accuracy: Accuracy) -> str:
    if accuracy.cosine_min is None:
        figures = f"No score is off by more than {accuracy.largest_difference:.1e}"
        kept = f"{_number(accuracy.kept, 3)} of the decisions are the same"
    else:
        figures = f"The cosine of the worst text is {accuracy.cosine_min:.5f}"
        kept = f"{_number(accuracy.kept, 3)} of the nearest neighbours are the same"
    return f"{figures}, and {kept}, over {accuracy.texts} texts, against {accuracy.reference}."


def _table(findings: Findings) -> str:
    ledger, demand = findings.ledger, findings.demand
    ordered = sorted(ledger.plans, key=lambda plan: _rank(findings, plan))
    lines = [_row(HEADS), _row(["---"] * len(HEADS)), *(_row(_cells(findings, plan)) for plan in ordered)]
    title = f"## All plans, the best first ({demand.objective})"
    unchecked = any(plan not in ledger.admissions for plan in ledger.plans)
    note = "\n\nWhere no memory is given, accuracy is that of the same engine and precision."
    return f"{title}\n\n" + "\n".join(lines) + (note if unchecked else "")


def _rank(findings: Findings, plan: EnginePlan) -> tuple[bool, bool, float]:
    ledger, demand = findings.ledger, findings.demand
    allowed = may_be_chosen(ledger, demand, plan)
    return plan != findings.choice.plan, not allowed, -median_score(ledger, demand, plan)


def _cells(findings: Findings, plan: EnginePlan) -> Iterator[str]:
    ledger = findings.ledger
    own, alike = ledger.admissions.get(plan), ledger.admission_of(plan)
    speed, ratio = ledger.speed_of(plan), ledger.median_ratio(plan)
    yield describe_plan(plan)
    if speed is None or ratio is None:
        yield from ("", "", "", "")
    else:
        yield from (_number(speed.texts_per_s, 1), _number(speed.latency_s * 1000, 2))
        yield from (_number(ratio.throughput, 2), _number(ratio.latency, 2))
    if alike is None:
        yield from ("", "", "")
    else:
        yield _number(alike.accuracy.cosine_min, 5)
        yield _number(alike.accuracy.cosine_mean, 5)
        yield _number(alike.accuracy.kept, 3)
    yield from ("", "") if own is None else (_number(own.memory_mb, 0), _number(own.load_s, 1))
    yield str(len(ledger.ratios(plan)))
    yield _remark(findings, ledger, plan)


def _remark(findings: Findings, ledger: Ledger, plan: EnginePlan) -> str:
    remarks = ["chosen"] if plan == findings.choice.plan else []
    if plan == ledger.safe:
        remarks.append("the safe plan")
    admission = ledger.admission_of(plan)
    refusal = None if admission is None else findings.demand.refusal(admission.accuracy)
    if plan in ledger.failures:
        remarks.append(f"failed: {ledger.failures[plan]}")
    elif refusal is not None:
        remarks.append(f"refused: {refusal}")
    return "; ".join(remarks)


def _pictures(pictures: Sequence[Path]) -> str:
    if not pictures:
        return "(Plots of speed against accuracy need matplotlib: pip install 'vecmill[optimize]'.)"
    return "\n".join(f"![{picture.stem.replace('-', ' against ')}]({picture.name})" for picture in pictures)


def _method(findings: Findings) -> str:
    return f"""## How this was measured

Each plan ran in a process of its own, on {findings.machine.cores} cores, over {findings.texts} texts.
*Texts/s* is with many texts waiting and as many calls at once as a server makes; *a lone text* has the
machine to itself, and its time is the median. Both leave out HTTP and tokenising.

Plans were measured in passes, in changing order. Each pass began and ended with the safe plan, and *times as
fast* is over that, in the same pass; the figures are medians over the passes. So a machine that gets slower
and faster does not favour anyone. The safe plan's speed changed by {findings.choice.noise:.1%} within a pass,
typically; beyond {NOISE_BOUND:.0%} nothing would be chosen but the safe plan.

Accuracy is over batches of random company. *Kept* is the share of each text's ten nearest neighbours that are
the same, or of a model's decisions. Refused is what is below what was asked for: {_say_demand(findings)}."""


def _say_demand(findings: Findings) -> str:
    demand = findings.demand
    asked = f"a cosine of {demand.min_cosine:g} for the worst text"
    return asked if demand.min_kept is None else f"{asked}, and {demand.min_kept:g} of the neighbours"


def _left_out(findings: Findings) -> str:
    if not findings.left_out:
        return ""
    lines = [f"- {engine}: {reason}" for engine, reason in findings.left_out.items()]
    return "## Not tried\n\n" + "\n".join(lines)


def _circumstances(findings: Findings) -> str:
    machine = findings.machine
    versions = ", ".join(f"{name} {number}" for name, number in findings.versions.items())
    return f"""## Where

- machine: {machine.processor_model}, {machine.cores} cores, {machine.system} (`{machine.fingerprint}`)
- model: `{findings.model_fingerprint}`
- {versions}

On another machine another plan may be best. `vecmill optimize` finds it there."""


def _row(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
