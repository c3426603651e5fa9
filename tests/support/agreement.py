"""How random models come out on an engine, beside what their own library answers in fp32."""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.random_models import RandomModel
from support.texts import hard_texts, mixed_texts
from vecmill.engines import ENGINES, find_engine
from vecmill.errors import SetupError
from vecmill.models import ModelDescription
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification.comparison import VerificationReport, compare_with_reference
from vecmill.verification.precision_gate import load_gated_engine
from vecmill.verification.reference import StoredReference

CPU = "cpu"
CORES = 2
LARGEST_DIFFERENCE = 1e-4
WORST_COSINES = {
    Precision.FP16: 0.999,
    Precision.BF16: 0.999,
    Precision.INT8: 0.99,
    Precision.INT8_FAST: 0.99,
    Precision.INT8_BLOCKS: 0.99,
}
TEXTS = (*mixed_texts(5, 24), *hard_texts()[::3])


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one model came out on one engine: the figure, or why it was refused.

    `figure` is the largest difference of fp32, and the cosine of the worst text of any other precision.
    """

    family: str
    engine: str
    precision: Precision
    figure: float | None = None
    refusal: str = ""

    @property
    def holds(self) -> bool:
        if self.figure is None:
            return bool(self.refusal)
        if self.precision is Precision.FP32:
            return self.figure <= LARGEST_DIFFERENCE
        return self.figure >= WORST_COSINES[self.precision]


@dataclass(slots=True)
class Outcomes:
    """Those of all models so far."""

    models: list[RandomModel] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def table(self) -> Iterator[str]:
        """A line for each engine and precision: how many, how many refused, and the worst of the others."""
        yield f"{len(self.models)} models of {len({model.family for model in self.models})} families"
        yield f"{'engine':<16}{'precision':<12}{'served':>8}{'refused':>9}  worst"
        for engine, precision in dict.fromkeys((one.engine, one.precision) for one in self.outcomes):
            alike = [one for one in self.outcomes if (one.engine, one.precision) == (engine, precision)]
            figures = [one.figure for one in alike if one.figure is not None]
            is_exact = precision is Precision.FP32
            worst = f"{max(figures, default=0):.1e}" if is_exact else f"{min(figures, default=1):.5f}"
            refused = len(alike) - len(figures)
            families = Counter(one.family for one in alike if one.figure is None)
            named = ", ".join(f"{family} {count}" for family, count in families.items())
            yield f"{engine:<16}{precision:<12}{len(figures):>8}{refused:>9}  {worst}  {named}"

    def families_never_served(self) -> list[tuple[str, str]]:
        """Precisions and families of which every model was refused by every engine."""
        served = {(str(one.precision), one.family) for one in self.outcomes if one.figure is not None}
        return sorted({(str(one.precision), one.family) for one in self.outcomes} - served)


def offered(engine: str, device: str = CPU) -> tuple[Precision, ...]:
    """What `engine` computes in on this device."""
    return find_engine(engine).find_capabilities().devices.get(device, ())


def installed_engines() -> list[str]:
    return [name for name, entry in ENGINES.items() if entry.is_installed]


def installed_plans() -> list[EnginePlan]:
    return [EnginePlan(name, one, CPU) for name in installed_engines() for one in offered(name)]


def figure_of(report: VerificationReport, precision: Precision) -> float:
    found = report.comparison
    if precision is Precision.FP32:
        # fp32 has seven digits, of large numbers as of small ones.
        return found.largest_difference / max(1.0, found.scale)
    return found.worst_cosine


def compute(
    description: ModelDescription, reference: StoredReference, plan: EnginePlan, cache_dir: Path, seed: int
) -> Outcome:
    """Serve the model as `plan` says, and compare. Whatever is no `SetupError` is nothing to hide."""
    assert plan.precision is not None
    bare = Outcome(description.architecture, plan.engine, plan.precision)
    try:
        engine = load_gated_engine(description, plan, cores=CORES, cache_dir=cache_dir)
    except SetupError as error:
        return Outcome(bare.family, bare.engine, bare.precision, refusal=error.message)
    try:
        engine.warm_up()
        report = compare_with_reference(description, engine, reference, TEXTS, seed=seed)
    finally:
        engine.close()
        gc.collect()
    return Outcome(bare.family, bare.engine, bare.precision, figure_of(report, plan.precision))


def compute_all(seed: int, plans: Sequence[EnginePlan], folder: Path) -> tuple[RandomModel, list[Outcome]]:
    model = RandomModel.draw(seed)
    description, reference = model.save(folder / "model", TEXTS)
    outcomes = [compute(description, reference, plan, folder / "prepared", seed) for plan in plans]
    wrong = [outcome for outcome in outcomes if not outcome.holds]
    assert not wrong, f"{model}\n" + "\n".join(map(str, wrong))
    return model, outcomes
