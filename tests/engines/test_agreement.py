"""Random models of all families, on every engine that is installed, in every precision that it offers.

What a mill would answer is what the model's own library answers in fp32: exactly in fp32, nearly in 16 and
8 bits. Or the model is refused, with a sentence that says so.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from support.random_models import DRAWS, RandomModel
from support.texts import hard_texts, mixed_texts
from vecmill.architectures.registry import ARCHITECTURES
from vecmill.engines import ENGINES, find_engine, load_engine
from vecmill.errors import SetupError
from vecmill.hardware.processor import multiplies_bytes
from vecmill.models import ModelDescription
from vecmill.values.batch import Batch, TokenSequence
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
# Each family three times.
MODELS = 3 * len(DRAWS)
# One of each kind of attention, and rows, scores and weights of tokens among them.
FEW = (55, 5, 15, 16, 19, 33, 38, 87, 95)
SLOW = ("torch-compile",)  # half a minute for each model
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


def offered(engine: str) -> tuple[Precision, ...]:
    """What `engine` computes in on this processor."""
    return find_engine(engine).find_capabilities().devices.get(CPU, ())


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


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return Outcomes()


def test_the_draw_goes_through_all_families() -> None:
    models = [RandomModel.draw(seed) for seed in range(MODELS)]
    assert MODELS >= 50
    assert {model.family for model in models} == set(DRAWS)
    # tests/tasks/test_judges.py has the reranker of the other architecture on every engine.
    assert {model.architecture for model in models} == set(ARCHITECTURES) - {"minicpm"}
    assert len({model.task for model in models}) >= 5
    assert RandomModel.draw(7) == models[7]


@pytest.mark.parametrize(("place", "seed"), [*enumerate(FEW)])
def test_a_few_models_agree_on_every_engine_in_one_precision(
    place: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The search for the layers that int8 leaves out takes long, and random weights do not need it.
    monkeypatch.setattr("vecmill.quantization.selection._HOPELESS", 0.0)
    offers = {name: offered(name) for name in installed_engines() if name not in SLOW}
    plans = [EnginePlan(name, found[place % len(found)], CPU) for name, found in offers.items() if found]
    compute_all(seed, plans, tmp_path)


def draw_choosing_model() -> RandomModel:
    """A model whose tokens pass through 2 of 8 experts; rounding to 16 or 8 bits may choose others."""
    model = RandomModel.draw(sorted(DRAWS).index("nomic_bert_experts"))
    return replace(model, settings={**model.settings, "num_experts": 8, "moe_top_k": 2})


def test_chosen_experts_agree_on_every_engine(tmp_path: Path) -> None:
    description, reference = draw_choosing_model().save(tmp_path / "model", TEXTS)
    plans = [
        plan for plan in installed_plans() if plan.precision is Precision.FP32 and plan.engine not in SLOW
    ]
    outcomes = [compute(description, reference, plan, tmp_path / "prepared", 0) for plan in plans]
    assert len(outcomes) > 1
    assert all(outcome.holds and not outcome.refusal for outcome in outcomes), outcomes


@pytest.mark.skipif(not multiplies_bytes(), reason="this processor does not multiply bytes")
@pytest.mark.parametrize("precision", [Precision.INT8, Precision.INT8_FAST, Precision.INT8_BLOCKS])
def test_experts_that_no_token_has_cost_int8_nothing(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecmill.quantization.selection._HOPELESS", 0.0)
    description, _ = draw_choosing_model().save(tmp_path / "model", TEXTS)
    engine = load_engine(description, EnginePlan("onnx", precision, CPU), cores=CORES, cache_dir=tmp_path)
    try:
        batches = [Batch.of([TokenSequence.of([token])]) for token in range(8)]
        found = [engine.run(batch, width=1).values for batch in batches]
    finally:
        engine.close()
    assert np.isfinite(found).all()
    assert np.ptp(found, axis=0).max() > 0.1


@pytest.mark.full
@pytest.mark.parametrize("seed", range(MODELS))
def test_a_random_model_agrees_on_every_engine_in_every_precision(
    seed: int, tmp_path: Path, outcomes: Outcomes
) -> None:
    model, found = compute_all(seed, installed_plans(), tmp_path)
    outcomes.models.append(model)
    outcomes.outcomes += found


@pytest.mark.full
def test_no_family_is_refused_everywhere(outcomes: Outcomes, capsys: pytest.CaptureFixture[str]) -> None:
    if len(outcomes.models) < MODELS:
        pytest.skip("asks for the outcomes of all models, each of which has to hold")
    with capsys.disabled():
        print("", *outcomes.table(), sep="\n")
    never = outcomes.families_never_served()
    # Tables of rows have no product that int8 could make smaller.
    assert [one for one in never if one[1] != "static"] == []
